"""A small encoder-decoder transformer, and the metric by which it is judged."""
import keras
import tensorflow as tf
from keras import layers


class Block(layers.Layer):
    """Self attention, attention to the source (in a decoder), and an MLP; norms come first."""

    def __init__(self, dim: int, heads: int, *, decoder: bool) -> None:
        super().__init__()
        self.decoder = decoder
        self.attend = layers.MultiHeadAttention(heads, dim // heads)
        self.attend_source = layers.MultiHeadAttention(heads, dim // heads) if decoder else None
        self.norms = [layers.LayerNormalization() for _ in range(3 if decoder else 2)]
        self.mlp = keras.Sequential([layers.Dense(4 * dim, "relu"), layers.Dense(dim), layers.Dropout(0.1)])

    def call(self, x, source_mask, memory=None, training=False):
        h = self.norms[0](x)
        if self.decoder:
            x += self.attend(h, h, use_causal_mask=True)
            x += self.attend_source(self.norms[1](x), memory, attention_mask=source_mask)
        else:
            x += self.attend(h, h, attention_mask=source_mask)
        return x + self.mlp(self.norms[-1](x), training=training)


class DateTranslator(keras.Model):
    def __init__(self, vocab_size: int, max_len: int, dim: int = 64, heads: int = 4, depth: int = 2) -> None:
        super().__init__()
        self.chars = layers.Embedding(vocab_size, dim)
        self.positions = layers.Embedding(max_len, dim)
        self.encoder = [Block(dim, heads, decoder=False) for _ in range(depth)]
        self.decoder = [Block(dim, heads, decoder=True) for _ in range(depth)]
        self.head = keras.Sequential([layers.LayerNormalization(), layers.Dense(vocab_size)])

    def embed(self, ids: tf.Tensor) -> tf.Tensor:
        return self.chars(ids) + self.positions(tf.range(tf.shape(ids)[1]))

    def call(self, source: tf.Tensor, target: tf.Tensor, training: bool = False) -> tf.Tensor:
        #@ forward x=source
        mask = (source != 0)[:, tf.newaxis, :]
        memory, x = self.embed(source), self.embed(target)
        for block in self.encoder:
            memory = block(memory, mask, training=training)
        for block in self.decoder:
            x = block(x, mask, memory, training=training)
        return self.head(x)


class ExactMatch(keras.metrics.Mean):
    """The share of dates of which every character is right."""
    def update_state(self, target, logits, sample_weight=None) -> None:
        said = tf.argmax(logits, axis=-1, output_type=target.dtype)
        super().update_state(tf.cast(tf.reduce_all(said == target, axis=-1), tf.float32), sample_weight)
