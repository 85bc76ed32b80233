"""What `zero_grad` of PyTorch does, in its order: the lines are what stack samples name."""

import torch


def zero_grad(self, set_to_none=True, foreach=True):
    grads = []
    for p in self.params:
        if set_to_none:
            p.grad = None
            continue
        p.grad.requires_grad_(False)
        if not foreach:
            p.grad.zero_()
        grads.append(p.grad)
    torch._foreach_zero_(grads)
