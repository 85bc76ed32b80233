"""Teach a transformer to translate dates as people write them ("tue, 3 mar 1998") into ISO 8601."""
import argparse
import itertools
import logging
import os
import random
from datetime import date, timedelta

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"

import keras
import numpy as np
import tensorflow as tf

from model import DateTranslator, ExactMatch

#@ imports

FORMATS = ("%d %B %Y", "%a, %d %b %Y", "%B %d, %Y", "%d/%m/%y", "%A %d %B %Y", "%b %d %Y", "%d.%m.%Y")
ALPHABET = "\0\n0123456789abcdefghijklmnopqrstuvwxyz ,./-"  # padding, start of a date, and the rest
SOURCE_LEN = 28


def make_pairs(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = random.Random(seed)
    code = {char: k for k, char in enumerate(ALPHABET)}
    source, target = np.zeros((n, SOURCE_LEN), np.int32), np.zeros((n, 11), np.int32)
    for row in range(n):
        day = date(1930, 1, 1) + timedelta(days=rng.randrange(36_500))
        written = day.strftime(rng.choice(FORMATS)).lower()
        source[row, : len(written)] = [code[char] for char in written]
        target[row] = [code[char] for char in "\n" + day.isoformat()]
    return source, target


class Trainer:
    log_every, eval_every, eval_batches = 100, 400, 8

    def __init__(self, batch_size: int, pairs: int = 40_000) -> None:
        train = tf.data.Dataset.from_tensor_slices(make_pairs(pairs, seed=0))
        self.train_data = train.shuffle(pairs).batch(batch_size, drop_remainder=True).prefetch(tf.data.AUTOTUNE)
        held_out = tf.data.Dataset.from_tensor_slices(make_pairs(self.eval_batches * batch_size, seed=1))
        self.eval_data = held_out.batch(batch_size).cache()
        self.model = DateTranslator(len(ALPHABET), SOURCE_LEN)
        self.model(*make_pairs(1, seed=2))  # creates the weights
        self.optimizer = keras.optimizers.AdamW(1e-3, global_clipnorm=1.0)
        self.optimizer.build(self.model.trainable_variables)
        self.loss_fn = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        self.exact_match = ExactMatch()
        self.step = 0

    @tf.function
    def train_step(self, source: tf.Tensor, target: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            logits = self.model(source, target[:, :-1], training=True)
            loss = self.loss_fn(target[:, 1:], logits)
        variables = self.model.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
        return loss

    @tf.function
    def eval_step(self, source: tf.Tensor, target: tf.Tensor) -> None:
        self.exact_match.update_state(target[:, 1:], self.model(source, target[:, :-1], training=False))

    def evaluate(self) -> float:
        self.exact_match.reset_state()
        for source, target in self.eval_data:
            self.eval_step(source, target)
        return float(self.exact_match.result())

    def fit(self) -> None:
        #@ setup
        for epoch in itertools.count(1):
            for source, target in self.train_data:
                #@ batch arrays=source,target
                loss = self.train_step(source, target)
                self.step += 1
                if self.step % self.log_every == 0:
                    logging.info("step %d  loss %.4f", self.step, float(loss))
                if self.step % self.eval_every == 0:
                    logging.info("step %d  exact match %.3f", self.step, self.evaluate())
                #@ step loss=loss model=self.model batch=source,target opt=self.optimizer index=self.step
            logging.info("epoch %d done", epoch)
            #@ epoch


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0, help="multiplies the batch size")
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    tf.random.set_seed(0)
    Trainer(batch_size=max(8, round(64 * args.scale))).fit()
