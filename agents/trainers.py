"""What trainers do beside their steps, by the functions that they do it in.

Whoever attaches to a job of theirs sees ``trainer.fit()`` as the user's only line.
"""

from __future__ import annotations

VALIDATION, CHECKPOINT, LOGGING = "validation", "checkpoint", "logging"

_TRANSFORMERS = "/transformers/trainer"
_LIGHTNING = ("/lightning/pytorch/", "/pytorch_lightning/", "/lightning/fabric/")
_KERAS = ("/keras/src/", "/tf_keras/src/")
# By the name of a function: the phase, and what the path of its file has.
FUNCTIONS = {
    "evaluate": (VALIDATION, (_TRANSFORMERS, *_KERAS)),
    "_evaluate": (VALIDATION, (_TRANSFORMERS,)),
    "evaluation_loop": (VALIDATION, (_TRANSFORMERS,)),
    "predict": (VALIDATION, (_TRANSFORMERS,)),
    "run": (VALIDATION, ("/loops/evaluation_loop.py",)),
    "_do_epoch_validate": (VALIDATION, ("/fastai/learner.py",)),
    "validate": (VALIDATION, ("/ultralytics/engine/", "/timm/")),
    "evaluate_policy": (VALIDATION, ("/stable_baselines3/common/evaluation.py",)),
    "_save_checkpoint": (CHECKPOINT, (_TRANSFORMERS, *_LIGHTNING)),
    "save_checkpoint": (CHECKPOINT, (*_LIGHTNING, "/deepspeed/runtime/", "/mmengine/")),
    "save_model": (CHECKPOINT, (_TRANSFORMERS, "/accelerate/", "/ultralytics/engine/", *_KERAS)),
    "_save_model": (CHECKPOINT, _KERAS),
    "save_state": (CHECKPOINT, ("/accelerate/accelerator.py",)),
    "log": (LOGGING, (_TRANSFORMERS,)),
    "log_metrics": (LOGGING, _LIGHTNING),
}


def phase_of(file: str, function: str) -> str | None:
    """Return the phase that a function of a trainer's is; ``None``: it is none of these."""
    found = FUNCTIONS.get(function)
    if found is None or not any(place in file for place in found[1]):
        return None
    return found[0]
