"""What a loop may do besides its steps, and which libraries and calls it does that with.

A package that a stack is in says what is done there, whatever the user called the function
around it. Of what is written in C no line is seen: there the names on the user's line say it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import StrEnum
from typing import Final

from whyidle.monitor.runs.stacks import CodeLine


class Phase(StrEnum):
    """A part of the loop, by its name in the JSON contract."""

    STEP = "step"
    VALIDATION = "validation"
    CHECKPOINT = "checkpoint"
    LOGGING = "logging"
    METRICS = "metrics"
    ENVIRONMENT = "environment"
    GENERATION = "generation"
    TOKENISATION = "tokenisation"
    PERIODIC = "periodic"
    EPOCH = "epoch"


WORDS: Final = {
    Phase.STEP: "the steps",
    Phase.VALIDATION: "validation",
    Phase.CHECKPOINT: "saving checkpoints",
    Phase.LOGGING: "logging",
    Phase.METRICS: "scoring on the host",
    Phase.ENVIRONMENT: "stepping environments",
    Phase.GENERATION: "generating tokens",
    Phase.TOKENISATION: "tokenising on the host",
    Phase.PERIODIC: "what is due every few steps",
    Phase.EPOCH: "what lies between epochs",
}
# While these go on no step does: the device has nothing to do, or does what is theirs.
STOPPING: Final = frozenset({Phase.VALIDATION, Phase.CHECKPOINT})
# What is no part of a step, and could be left out of it.
BESIDE: Final = STOPPING | {Phase.LOGGING, Phase.METRICS, Phase.PERIODIC}
# What reads a checkpoint back is start-up, or a data set.
_NOT_READING: Final = r"(?!\w*([Ll]oad|[Rr]estore|[Rr]esume|[Rr]ead|deserializ|from_bytes))\w+"
# A file and a function of it, as in "/x/site-packages/wandb/sdk/wandb_run.py log".
_LIBRARIES: Final = {
    Phase.CHECKPOINT: re.compile(
        r".*/torch/serialization\.py (_?save\w*|_legacy_save|persistent_id|write_record|__exit__)"
        rf"|.*/(torch/distributed/checkpoint|safetensors|orbax|flax/training/checkpoints"
        rf"|flax/serialization|keras/src/saving|joblib/numpy_pickle|equinox/_serialisation"
        rf"|lightning/\w+/plugins/io|pytorch_lightning/plugins/io)(/.*)?\.py {_NOT_READING}"
        rf"|.*/(model_checkpoint|checkpoint_connector|checkpointing|cloud_io)\.py {_NOT_READING}"
        r"|.*/numpy/lib/_?npyio\w*\.py _?save\w*|.*/transformers/trainer\.py _?save\w*"
        r"|.*/transformers/modeling_utils\.py save_pretrained"
        r"|.*/h5py/_hl/\w+\.py (make_new_dset|create_\w+|__setitem__|flush)"
        r"|.*/fsspec/implementations/\w+\.py (write|commit)"
        r"|.*/deepspeed/.* _?save\w*checkpoint\w*"
    ),
    Phase.LOGGING: re.compile(
        r".*/(wandb|tensorboard|tensorboardX|torch/utils/tensorboard|mlflow|neptune|comet_ml"
        r"|clearml|aim|swanlab|trackio|dvclive|loguru|structlog|matplotlib|seaborn|plotly)/.*"
        r"\.py (?!(init|finish|login|start_run|end_run|import_hook|<module>)\b).*"
        r"|.*/lib/python[\d.]+/(logging/\w+|csv)\.py .*"
        r"|.*/(lightning|pytorch_lightning)/.*/loggers/.*|.*/keras/src/callbacks/tensorboard\.py .*"
        r"|.*/transformers/integrations/integration_utils\.py .*"
    ),
    Phase.METRICS: re.compile(
        r".*/(sklearn/metrics|torchmetrics|torcheval/metrics|ignite/metrics|evaluate|seqeval"
        r"|sacrebleu|rouge_score|pycocotools)/.*"
    ),
    Phase.ENVIRONMENT: re.compile(
        r".*/(gymnasium|gym|gym3|highway_env|dm_env|dm_control|pettingzoo|supersuit|minigrid|ale_py"
        r"|procgen|vizdoom|nle|minihack|crafter|safety_gymnasium|metaworld|robosuite|smac|smacv2"
        r"|pysc2|envpool|pybullet_envs|stable_baselines3/common/(vec_env|monitor|atari_wrappers)"
        r"|tianshou/env|torchrl/envs|ray/rllib/env)(/.*)?\.py (?!(make|<module>)\b).*"
    ),
    # Those that are written in Rust stand in files of their own.
    Phase.TOKENISATION: re.compile(
        r".*/transformers/(tokenization_(utils|python|utils_sentencepiece)"
        r"|models/\w+/tokenization_(?!\w*_fast)\w+)\.py (?!from_pretrained|__init__|_?load\w*).*"
    ),
    Phase.GENERATION: re.compile(r".*/transformers/generation/\w+\.py .*"),
    Phase.VALIDATION: re.compile(
        r".*/(lightning|pytorch_lightning)/.*/evaluation_loop\.py .*"
        r"|.*/(transformers/trainer|keras/src/\w+/trainer)\.py (evaluate|evaluation_loop)"
    ),
}
# Only where they are the innermost: what goes through a bar of progress is in it, too.
_BARS: Final = re.compile(r".*/(tqdm|rich)/.*")
# What a line calls, as in "np.savez"; whose methods these are is not known.
_CALLS: Final = {
    Phase.CHECKPOINT: re.compile(
        r"(torch|np|numpy|jnp|jax\.numpy)\.save(z(_compressed)?)?|(pickle|cloudpickle|dill)\.dump"
        r"|joblib\.dump|(.*\.)?(save_pretrained|save_checkpoint|save_weights|save_model|save_state"
        r"|save_file|async_save|tree_serialise_leaves|msgpack_serialize|to_bytes)"
        r"|(.*\.)?\w*(ckpt|checkpoint)\w*\.save"
    ),
    Phase.LOGGING: re.compile(
        r"print|(.*\.)?(write|writelines|flush|writerow|writerows|to_csv|savefig|log_metrics?"
        r"|add_(scalar|scalars|histogram|image|images|figure|text|graph))|json\.dump|wandb\.log"
        r"|(log|logger|logging)\.(debug|info|warning|error|log)"
    ),
}
# Decorators stand before some of these functions: then only the import says whose they are.
_SCORES: Final = re.compile(
    r"(sklearn|torcheval|ignite)\.metrics(\..*)?|(torchmetrics|evaluate|seqeval|sacrebleu)(\..*)?"
)
# To write to the disk what was written before.
_SYNCS: Final = re.compile(r"os\.(sync|fsync|fdatasync)")


def of_library(leaf: CodeLine | None, called: CodeLine | None) -> Phase | None:
    """Return what is done where a thread was found, or in what the user's line called."""
    for line in (called, leaf):
        name = "" if line is None else f"{line.file} {line.function}"
        for phase, pattern in _LIBRARIES.items():
            if pattern.fullmatch(name):
                return phase
    if leaf is not None and _BARS.fullmatch(leaf.file):
        return Phase.LOGGING
    return None


def of_calls(names: Iterable[str]) -> Phase | None:
    """Return what is done by calling such names; the first in the order of phases counts."""
    names = tuple(names)
    for phase, pattern in _CALLS.items():
        if any(map(pattern.fullmatch, names)):
            return phase
    return None


def scores(modules: Iterable[str]) -> bool:
    """Tell whether something was imported from a package that scores."""
    return any(map(_SCORES.fullmatch, modules))


def syncs(names: Iterable[str]) -> bool:
    """Tell whether one of them waits for the disk."""
    return any(map(_SYNCS.fullmatch, names))
