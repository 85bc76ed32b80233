"""NumPy input pipeline: example -> batch generator -> prefetching thread -> device."""

import queue
import threading

import jax
import numpy as np

MEAN = np.array([0.4914, 0.4822, 0.4465], np.float32)
STD = np.array([0.2470, 0.2435, 0.2616], np.float32)


class ImageSplit:
    """uint8 images and integer labels, held in memory as CIFAR is."""

    def __init__(self, num_examples, num_classes, seed, image_size=32):
        rng = np.random.default_rng(seed)
        coarse = np.random.default_rng(7).integers(0, 256, (num_classes, 8, 8, 3))
        self.labels = rng.integers(0, num_classes, num_examples).astype(np.int32)
        up = image_size // 8
        prototypes = coarse.repeat(up, axis=1).repeat(up, axis=2).astype(np.int16)
        noise = rng.integers(-60, 60, (num_examples, image_size, image_size, 3), dtype=np.int16)
        noise += prototypes[self.labels]
        self.images = np.clip(noise, 0, 255).astype(np.uint8)

    def __len__(self):
        return len(self.labels)


def augment(image, rng, pad=4):
    """Random shift by up to `pad` pixels and a horizontal flip."""
    dy, dx, flip = rng.integers(0, (2 * pad + 1, 2 * pad + 1, 2))
    size = image.shape[0]
    canvas = np.zeros((size + 2 * pad, size + 2 * pad, 3), np.uint8)
    canvas[pad:pad + size, pad:pad + size] = image
    out = canvas[dy:dy + size, dx:dx + size]
    if flip:
        out = out[:, ::-1]
    #@ sample array=out
    return out


def train_batches(split, batch_size, seed):
    """Endless generator of shuffled, augmented NumPy batches."""
    rng = np.random.default_rng(seed)
    while True:
        order = rng.permutation(len(split))
        for start in range(0, len(order) - batch_size + 1, batch_size):
            idx = order[start:start + batch_size]
            images = np.stack([augment(split.images[i], rng) for i in idx])
            images = (images.astype(np.float32) / 255.0 - MEAN) / STD
            labels = split.labels[idx]
            #@ batch arrays=images,labels
            yield {"image": images, "label": labels}


def eval_batches(split, batch_size):
    for start in range(0, len(split) - batch_size + 1, batch_size):
        images = split.images[start:start + batch_size].astype(np.float32) / 255.0
        yield {"image": (images - MEAN) / STD, "label": split.labels[start:start + batch_size]}


def prefetch_to_device(iterator, size=2):
    """Runs `iterator` in a thread, keeping `size` batches on the device."""
    buffer = queue.Queue(maxsize=size)
    done = object()

    def producer():
        try:
            for batch in iterator:
                buffer.put(jax.device_put(batch))
        finally:
            buffer.put(done)

    threading.Thread(target=producer, daemon=True).start()
    while True:
        batch = buffer.get()
        if batch is done:
            return
        yield batch
