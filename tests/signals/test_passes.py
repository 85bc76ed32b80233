"""A pass through a model that trains nothing, in programs of many styles; and those that do."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.signals.programs import watched
from whyidle.monitor.signals.account import account_of
from whyidle.monitor.signals.feeding import idle_pass

# The line of the pass has the mark ``!``.
IDLE = {
    "a script that prints how often it is right": """
for x, y in loader:
    out = model(x)  # step 200
    loss = criterion(out, y)  # step 50
    loss.backward()  # step 400
    optimizer.step()  # step 100
    with torch.no_grad():
        right = (model(x).argmax(1) == y).float().mean()  #! # step 250
    bar.set_postfix(right=right.item())
""",
    "a helper, with a model of one's own": """
class Net(nn.Module):
    def forward(self, x):
        return self.layers(x)  # step 200 of a # step 300 of b c
    def twice(self, x):
        return self(x)
def measured(net, x, y):
    given = net.forward(x)  # b
    return float((given - y).abs().mean())
def run(net, optimizer):
    while True:
        x, y = next(stream)
        loss = ((net(x) - y) ** 2).mean()  # a
        loss.backward()  # step 500
        optimizer.step()
        spread = measured(net, x, y)  #! # c
        print(spread)
""",
    "a count that the epoch returns": """
def one_epoch(model, loader, opt):
    seen = right = 0
    for x, y in loader:
        opt.zero_grad()
        loss_of(model(x), y).backward()  # step 700
        opt.step()
        right += (model(x).argmax(1) == y).sum().item()  #! # step 300
        seen += len(y)
    return right / seen
""",
    "a loss and its gradient by two functions": """
for step in range(10**9):
    batch = draw(step)
    value = loss_of(params, batch)  #! # step 300
    grads = gradient_of(params, loss_of, batch)  # step 600
    params = moved(params, grads, loss_of(params, batch))  # step 100
    if step % 100 == 0:
        print(value)
""",
}
OF_USE = {
    "a discriminator that judges twice": """
for real in loader:
    fake = G(noise())  # step 200
    d_loss = D(real).mean() - D(fake.detach()).mean()  # step 300
    d_loss.backward()  # step 200
    d_opt.step()
    g_loss = -D(fake).mean()  # step 100
    g_loss.backward()  # step 200
""",
    "an agent that moves": """
while True:
    move = net(seen)  # step 300
    seen, reward = env.step(move)
    loss = net(seen).mean() - reward  # step 300
    loss.backward()  # step 400
""",
    "two views of one picture": """
for x in loader:
    one = net(flipped(x))  # step 200
    two = net(cropped(x))  # step 200
    loss = contrast(one, two)  # step 50
    loss.backward()  # step 550
""",
    "what is kept for later": """
class Agent:
    def play(self):
        while True:
            self.values.append(self.net(self.seen))  # step 300
            loss = self.net(self.seen).mean()  # step 300
            loss.backward()  # step 400
""",
    "a validation that is due now and then": """
for number, (x, y) in enumerate(loader):
    loss = criterion(model(x), y)  # step 300
    loss.backward()  # step 400
    if number % 50 == 0:
        print(criterion(model(held_x), held_y))  # step 300
""",
    "what decides when to stop": """
for x, y in loader:
    loss = criterion(model(x), y)  # step 250
    loss.backward()  # step 500
    sure = model(x).max()  # step 250
    if sure > 0.99:
        break
""",
    "what the learning rate goes by": """
for x, y in loader:
    loss = criterion(model(x), y)  # step 250
    loss.backward()  # step 500
    schedule.step(criterion(model(held_x), held_y))  # step 250
""",
    "pictures for another thread": """
while True:
    painted = model(noise)  # step 300
    pictures.put(painted)
    loss = criterion(model(x), y)  # step 300
    loss.backward()  # step 400
""",
    "layers that hooks keep": """
for x in loader:
    clean = model(x)  # step 300
    kept = dict(layers)
    model(noisy(x))  # step 200
    loss = distance(layers, kept) + clean.mean()
    loss.backward()  # step 500
""",
    "a validation in the other branch": """
for phase in ("train", "validate"):
    for x, y in loaders[phase]:
        if phase == "train":
            loss = criterion(model(x), y)  # step 300
            loss.backward()  # step 400
        else:
            total += criterion(model(x), y).item()  # step 300
""",
    "a validation in another case": """
for kind, x, y in loader:
    match kind:
        case "train":
            loss = criterion(model(x), y)  # step 300
            loss.backward()  # step 400
        case _:
            total += criterion(model(x), y).item()  # step 300
""",
    "what a loss within takes from around it": """
for x, reward in loader:
    wanted = reward + net.apply(old, x)  # step 300
    def squares(params):
        return ((net.apply(params, x) - wanted) ** 2).mean()
    value, grads = jax.value_and_grad(squares)(params)  # step 500
    params = optimizer.update(params, grads, net.apply(params, x))  # step 200
""",
    "nothing learns": """
for x in loader:
    first = model(x)  # step 500
    print(model(x).argmax())  # step 500
""",
    "a score of what came out": """
for x, y in loader:
    out = model(x)  # step 300
    loss = criterion(out, y)  # step 50
    loss.backward()  # step 500
    print(torch.topk(out, 5))  # step 150
""",
    "a teacher": """
for x in loader:
    with torch.no_grad():
        wanted = teacher(x)  # step 300
    loss = distance(student(x), wanted)  # step 200
    loss.backward()  # step 500
""",
    "a test after each epoch, whose loop is in a function": """
class Net(nn.Module):
    def forward(self, x):
        return self.layers(x)  # step 300 of a t # step 300 of b s
def test():
    right = 0
    for x, y in test_loader:
        right += (net(x).argmax(1) == y).sum().item()  # b
    print(right / len(test_loader))
def train():
    for x, y in train_loader:
        loss = criterion(net(x), y)  # a
        loss.backward()  # step 400 of t
        optimizer.step()
for epoch in range(100):
    train()  # t
    test()  # s
""",
    "an average of the weights": """
for x in loader:
    loss = model(x).mean()  # step 300
    loss.backward()  # step 500
    averaged.update_parameters(model)  # step 200
""",
}


@pytest.mark.parametrize("style", IDLE)
def test_a_pass_that_trains_nothing(style: str, tmp_path: Path) -> None:
    source = IDLE[style]
    samples, _ = watched(source, tmp_path)
    account = account_of(samples, by_time=True)
    assert account is not None
    found = idle_pass(account)
    assert found is not None
    wanted = next(n for n, text in enumerate(source.splitlines(), 1) if "#!" in text)
    assert found.where.line == wanted
    assert found.share == pytest.approx(0.25, abs=0.06)


@pytest.mark.parametrize("style", OF_USE)
def test_a_pass_that_is_of_use(style: str, tmp_path: Path) -> None:
    account = account_of(watched(OF_USE[style], tmp_path)[0], by_time=True)
    assert account is not None
    assert idle_pass(account) is None
