"""Trains a ViT on 32x32 images."""

import argparse
import functools
import logging

import jax
import jax.numpy as jnp
import optax
from flax.training import train_state

import input_pipeline
from model import VisionTransformer

#@ imports

jax.config.update("jax_default_prng_impl", "rbg")  # cheaper to compile than threefry

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
logging.getLogger("jax").setLevel(logging.WARNING)


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--learning_rate", type=float, default=1e-3)
    parser.add_argument("--weight_decay", type=float, default=1e-4)
    parser.add_argument("--warmup_steps", type=int, default=200)
    parser.add_argument("--total_steps", type=int, default=1_000_000)
    parser.add_argument("--log_every", type=int, default=100)
    parser.add_argument("--num_classes", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def create_train_state(rng, model, args):
    variables = jax.jit(model.init)(rng, jnp.zeros((1, 32, 32, 3)))
    schedule = optax.warmup_cosine_decay_schedule(
        0.0, args.learning_rate, args.warmup_steps, args.total_steps
    )
    tx = optax.chain(
        optax.clip_by_global_norm(1.0),
        optax.adamw(schedule, weight_decay=args.weight_decay),
    )
    return train_state.TrainState.create(apply_fn=model.apply, params=variables["params"], tx=tx)


@functools.partial(jax.jit, donate_argnums=(0,))
def train_step(state, batch):
    def loss_fn(params):
        logits = state.apply_fn({"params": params}, batch["image"])
        labels = optax.smooth_labels(jax.nn.one_hot(batch["label"], logits.shape[-1]), 0.1)
        return optax.softmax_cross_entropy(logits, labels).mean(), logits

    (loss, logits), grads = jax.value_and_grad(loss_fn, has_aux=True)(state.params)
    state = state.apply_gradients(grads=grads)
    return state, {"loss": loss, "accuracy": jnp.mean(logits.argmax(-1) == batch["label"])}


@jax.jit
def eval_step(state, batch):
    logits = state.apply_fn({"params": state.params}, batch["image"])
    return jnp.sum(logits.argmax(-1) == batch["label"])


def evaluate(state, split, batch_size):
    correct = [eval_step(state, b) for b in input_pipeline.eval_batches(split, batch_size)]
    seen = len(correct) * batch_size
    return sum(int(c) for c in correct) / max(seen, 1)


def main():
    args = parse_args()
    batch_size = max(4, int(32 * args.scale))
    train_split = input_pipeline.ImageSplit(10_000, args.num_classes, seed=args.seed + 1)
    test_split = input_pipeline.ImageSplit(512, args.num_classes, seed=args.seed + 2)

    model = VisionTransformer(num_classes=args.num_classes)
    state = create_train_state(jax.random.PRNGKey(args.seed), model, args)
    num_params = sum(p.size for p in jax.tree_util.tree_leaves(state.params))
    logging.info("%d parameters, batch size %d", num_params, batch_size)

    steps_per_epoch = len(train_split) // batch_size
    train_iter = input_pipeline.prefetch_to_device(
        input_pipeline.train_batches(train_split, batch_size, args.seed), size=3
    )

    eval_size = min(batch_size, 64)
    logging.info("test accuracy before training %.4f", evaluate(state, test_split, eval_size))
    step = 0
    #@ setup
    for epoch in range(1_000_000):
        for _ in range(steps_per_epoch):
            batch = next(train_iter)
            state, metrics = train_step(state, batch)
            loss = metrics["loss"]
            images, labels = batch["image"], batch["label"]
            step += 1
            if step % args.log_every == 0:
                host = jax.device_get(metrics)
                logging.info("step %d loss %.4f accuracy %.3f", step, host["loss"], host["accuracy"])
            #@ step loss=loss batch=images,labels index=step params=state.params
        logging.info("epoch %d test accuracy %.4f", epoch, evaluate(state, test_split, eval_size))
        #@ epoch


if __name__ == "__main__":
    main()
