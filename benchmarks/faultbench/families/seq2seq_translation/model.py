"""Lab 5: the encoder-decoder transformer."""

import math

import torch
from torch import nn

from data import PAD


class PositionalEncoding(nn.Module):
    def __init__(self, d_model, dropout, max_len):
        super().__init__()
        position = torch.arange(max_len).unsqueeze(1)
        freq = torch.exp(torch.arange(0, d_model, 2) * (-math.log(10000.0) / d_model))
        pe = torch.zeros(max_len, d_model)
        pe[:, 0::2] = torch.sin(position * freq)
        pe[:, 1::2] = torch.cos(position * freq)
        self.register_buffer("pe", pe, persistent=False)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        return self.dropout(x + self.pe[: x.size(1)])


class Seq2SeqTransformer(nn.Module):
    def __init__(self, n_src, n_tgt, d_model=192, n_heads=6, n_layers=2, d_ff=512, dropout=0.1, max_len=64):
        super().__init__()
        self.scale = math.sqrt(d_model)
        self.src_embed = nn.Embedding(n_src, d_model, padding_idx=PAD)
        self.tgt_embed = nn.Embedding(n_tgt, d_model, padding_idx=PAD)
        self.positions = PositionalEncoding(d_model, dropout, max_len)
        self.transformer = nn.Transformer(
            d_model, n_heads, n_layers, n_layers, d_ff, dropout, batch_first=True
        )
        self.generator = nn.Linear(d_model, n_tgt)
        causal = torch.ones(max_len, max_len, dtype=torch.bool).triu(1)
        self.register_buffer("causal", causal, persistent=False)
        for p in self.transformer.parameters():
            if p.dim() > 1:
                nn.init.xavier_uniform_(p)

    def forward(self, src, tgt):
        #@ forward x=src
        length = tgt.size(1)
        src_padding = src == PAD
        hidden = self.transformer(
            self.positions(self.src_embed(src) * self.scale),
            self.positions(self.tgt_embed(tgt) * self.scale),
            tgt_mask=self.causal[:length, :length],
            src_key_padding_mask=src_padding,
            tgt_key_padding_mask=tgt == PAD,
            memory_key_padding_mask=src_padding,
            tgt_is_causal=True,
        )
        return self.generator(hidden)
