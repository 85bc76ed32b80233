#!/usr/bin/env python
"""Train a small BERT from scratch to tag named entities."""

import logging
import os
import tempfile
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import nn
from transformers import (
    BertConfig,
    BertModel,
    BertPreTrainedModel,
    HfArgumentParser,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)
from transformers.modeling_outputs import TokenClassifierOutput

from corpus import IGNORE, LABEL2ID, LABELS, PadCollator, load_corpus

#@ imports

logger = logging.getLogger("ner")


@dataclass
class ScriptArguments:
    scale: float = field(default=1.0, metadata={"help": "Multiplies the batch size."})
    output_dir: str = field(default=os.path.join(tempfile.gettempdir(), "ner-bert-tiny"))
    train_size: int = field(default=20_000)
    eval_size: int = field(default=256)
    max_length: int = field(default=96)
    hidden_size: int = field(default=128)
    layers: int = field(default=4)
    learning_rate: float = field(default=5e-4)
    outside_weight: float = field(default=0.4, metadata={"help": "Loss weight of the O tag."})
    seed: int = field(default=7)


class BertTagger(BertPreTrainedModel):
    """Encoder with a linear tagger; the loss counts the frequent O tag for less."""

    def __init__(self, config):
        super().__init__(config)
        self.bert = BertModel(config, add_pooling_layer=False)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)
        weight = torch.ones(config.num_labels)
        weight[LABEL2ID["O"]] = config.outside_weight
        self.register_buffer("class_weight", weight)
        self.post_init()

    def forward(self, input_ids, attention_mask=None, labels=None):
        #@ forward x=input_ids
        hidden = self.bert(input_ids, attention_mask=attention_mask).last_hidden_state
        logits = self.classifier(self.dropout(hidden))
        loss = None
        if labels is not None:
            loss = nn.functional.cross_entropy(
                logits.flatten(0, 1),
                labels.flatten(),
                weight=self.class_weight,
                ignore_index=IGNORE,
            )
        return TokenClassifierOutput(loss=loss, logits=logits)


class TaggingTrainer(Trainer):
    """Counts the tokens that went through the model, padding included."""

    tokens_seen = 0

    def training_step(self, model, inputs, num_items_in_batch=None):
        input_ids, labels = inputs["input_ids"], inputs["labels"]
        loss = super().training_step(model, inputs, num_items_in_batch)
        self.tokens_seen += input_ids.numel()
        #@ step loss=loss model=model batch=input_ids,labels opt=self.optimizer index=self.state.global_step
        return loss

    def log(self, logs, start_time=None):
        super().log({**logs, "tokens_m": round(self.tokens_seen / 1e6, 3)}, start_time)


class EpochSummary(TrainerCallback):
    def on_epoch_end(self, args, state, control, **kwargs):
        logger.info("epoch %d done, %d steps so far", round(state.epoch), state.global_step)
        #@ epoch


def keep_predictions(logits, labels):
    return logits.argmax(-1)


def compute_metrics(prediction):
    predicted, gold = prediction.predictions, prediction.label_ids
    known = gold != IGNORE
    predicted, gold = predicted[known], gold[known]
    outside = LABEL2ID["O"]
    hits = np.sum((predicted == gold) & (gold != outside))
    precision = hits / max(1, np.sum(predicted != outside))
    recall = hits / max(1, np.sum(gold != outside))
    return {
        "accuracy": float(np.mean(predicted == gold)),
        "f1": float(2 * precision * recall / max(1e-9, precision + recall)),
    }


def main():
    (script,) = HfArgumentParser(ScriptArguments).parse_args_into_dataclasses()
    logging.basicConfig(format="%(asctime)s %(name)s: %(message)s")
    logger.setLevel(logging.INFO)
    set_seed(script.seed)

    train_set, eval_set, tokenizer = load_corpus(
        script.train_size, script.eval_size, script.max_length
    )
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=script.hidden_size,
        num_hidden_layers=script.layers,
        num_attention_heads=4,
        intermediate_size=4 * script.hidden_size,
        max_position_embeddings=script.max_length,
        pad_token_id=tokenizer.pad_id,
        id2label=dict(enumerate(LABELS)),
        label2id=LABEL2ID,
        outside_weight=script.outside_weight,
    )
    model = BertTagger(config)
    logger.info(
        "%d train / %d dev sentences, vocabulary of %d, %.2fM parameters",
        len(train_set), len(eval_set), len(tokenizer), model.num_parameters() / 1e6,
    )

    batch_size = max(1, round(24 * script.scale))
    training_args = TrainingArguments(
        output_dir=script.output_dir,
        num_train_epochs=10_000,
        per_device_train_batch_size=batch_size,
        per_device_eval_batch_size=64,
        learning_rate=script.learning_rate,
        weight_decay=0.01,
        lr_scheduler_type="constant_with_warmup",
        warmup_steps=200,
        max_grad_norm=1.0,
        eval_strategy="epoch",
        save_strategy="epoch",
        save_total_limit=1,
        logging_steps=50,
        logging_nan_inf_filter=False,
        dataloader_num_workers=2,
        dataloader_persistent_workers=True,
        dataloader_pin_memory=torch.cuda.is_available(),
        dataloader_drop_last=True,
        disable_tqdm=True,
        report_to="none",
        seed=script.seed,
    )
    trainer = TaggingTrainer(
        model=model,
        args=training_args,
        train_dataset=train_set,
        eval_dataset=eval_set,
        data_collator=PadCollator(tokenizer.pad_id),
        compute_metrics=compute_metrics,
        preprocess_logits_for_metrics=keep_predictions,
        callbacks=[EpochSummary()],
    )
    #@ setup
    trainer.train()


if __name__ == "__main__":
    main()
