"""Whether the body of a loop trains, in the styles of many frameworks and people."""

from __future__ import annotations

import ast
import textwrap
from pathlib import Path

import pytest

from whyidle.monitor.code.trains import trains, trains_around
from whyidle.monitor.runs.stacks import CodeLine

TRAIN = {
    "PyTorch": "loss.backward()\noptimizer.step()",
    "PyTorch with a closure": "optimizer.step(closure)",
    "an optimizer of one's own name": "self.g_optim.step()",
    "mixed precision": "scaler.scale(loss).backward()\nscaler.step(opt)",
    "gradients alone": "loss.backward()",
    "gradients by hand": "grads = torch.autograd.grad(loss, weights)",
    "weights by hand": "w -= lr * w.grad",
    "weights by hand, in a loop": "for p in model.parameters():\n    p.data -= lr * p.grad",
    "Lightning's manual optimization": "self.manual_backward(loss)",
    "Lightning Fabric": "fabric.backward(loss)",
    "Accelerate": "accelerator.backward(loss)",
    "DeepSpeed": "engine.backward(loss)\nengine.step()",
    "GAN": "d_loss.backward()\nopt_d.step()\ng_loss.backward()\nopt_g.step()",
    "JAX by hand": "params, opt_state = update(params, opt_state, batch)",
    "JAX, what changes in one object": "state, metrics = train_step(state, batch)",
    "JAX, a step under a short name": "state, metrics = p_step(state, batch)",
    "JAX, gradients in the loop": "params = [w - lr * d for w, d in zip(params, grad(f)(params))]",
    "JAX, trees by hand": "params = jax.tree.map(lambda p, g: p - 0.1 * g, params, grads)",
    "optax": "updates, s = opt.update(grads, s)\nparams = optax.apply_updates(params, updates)",
    "Flax's state": "state = state.apply_gradients(grads=grads)",
    "Flax NNX": "loss, grads = nnx.value_and_grad(loss_fn)(model)\noptimizer.update(model, grads)",
    "Flax NNX, one line": "optimizer.update(grads)",
    "Equinox": "loss, model, opt_state = make_step(model, batch, opt_state)",
    "Haiku": "params, opt_state = sgd_step(params, opt_state, next(data))",
    "NumPyro": "svi_state, loss = svi.update(svi_state, batch)",
    "jaxopt": "params, state = solver.update(params, state, batch)",
    "PureJaxRL": "runner_state, metrics = jax.lax.scan(_update_step, runner_state, None, n)",
    "Keras 3": "optimizer.apply(grads, variables)",
    "TensorFlow": "optimizer.apply_gradients(zip(grads, variables))",
    "TensorFlow's tape": "grads = tape.gradient(loss, variables)",
    "TensorFlow 1": "opt.minimize(loss, vs)",
    "Keras by hand": "model.train_on_batch(x, y)",
    "a graph step": "loss = train_step(x, y)",
    "scikit-learn": "clf.partial_fit(x, y)",
    "fit in a loop": "model.fit(x, y)",
    "RL, an agent": "agent.learn(batch)",
    "RL, an agent that updates": "agent.update(batch)",
    "RL, a function of updates": "update_policy(batch)",
    "a function by its name alone": "update(model, batch)",
    "RL in JAX": "actor_params, s = actor_step(actor_params, s, batch)",
    "a Trainer of one's own": "self._train_batch(x)",
    "a function below": "run_batch(x)",
    "a method below": "self.run_one(x)",
    "a function below, two deep": "everything(x)",
    "EMA beside it": "loss.backward()\nema.update(model)",
    "a Trainer of a library": "trainer.train(resume_from_checkpoint=True)",
    "a model that trains itself": "model.train(data='coco8.yaml', epochs=3)",
    "contrastive retrieval": "state, loss = retrieval_step(state, batch)",
    "diffusion that learns": "params, loss = denoiser_step(params, batch)",
    "two optimizers with names": "optimizer_generator.step()",
    "XGBoost": "booster.update(dtrain, i)",
}
NOT = {
    "EMA alone": "ema.update(model)",
    "an environment": "obs = env.step(action)",
    "an environment that is given its state": "obs, state, r, done, _ = env.step(key, state, a)",
    "several environments": "obs, r, d, t, info = self.envs.step(actions)",
    "a mode": "model.train()",
    "the other mode": "model.train(False)",
    "a bar": "bar.update(1)",
    "a meter": "losses.update(loss.item(), n)",
    "a metric": "self.train_acc.update(preds, y)",
    "a dictionary": "config.update(changes)",
    "a set": "seen.update(names)",
    "counts": "correct += (model(x).argmax(1) == y).sum()",
    "a list of losses": "losses.append(loss.item())",
    "predictions": "preds = model.predict(x)",
    "random keys": "key, sub = jax.random.split(key)",
    "a sum": "total = sum_of(total, x)",
    "generation in PyTorch": "ids = torch.cat((ids, sample(model(ids)[:, -1])), dim=1)",
    "generation, one call": "tokens = model.generate(tokens)",
    "a recurrent model": "output, hidden = model(data, hidden)",
    "a recurrent cell": "h, c = self.lstm(x, (h, c))",
    "a recurrent cell with a state": "y, state = cell(x, state)",
    "layers": "x = layer(x)",
    "diffusion": "img = p_sample(model, img, t)",
    "to the device": "x = x.to(device)",
    "a schedule": "scheduler.step()",
    "a profiler": "prof.step()",
    "time": "now = time.time()",
    "an evaluation": "acc = accuracy(params, x, y)",
    "an evaluation of a state": "metrics = eval_step(state, batch)",
    "gradients that are only looked at": "shown[name] = wandb.Histogram(p.grad)",
    "a mode that was": "model.train(was_training)",
    "a split": "a, b = train_test_split(x, y)",
    "a loader that is made": "batches = model.train_dataloader()",
    "a figure": "fig.update_layout(title=title)",
    "a database": "collection.update_one(a, b)",
    "a transform": "x = scaler.fit_transform(x)",
    "data without an end": "batch = toy_data.inf_train_gen(name, batch_size=2000)",
    "inference made faster": "m = torch.jit.optimize_for_inference(m)",
    "attention": "attn_weights = F.softmax(attn_weights, dim=-1)",
    "particles": "weights = normalize(weights)",
    "a wrapper": "model = DDP(model)",
    "options": "opt.update(vars(args))",
    "a solver of equations": "y, e = solver.step(terms, t, y)",
    "a function of that name that draws": "update_frame(step)",
    "a counter": "step += 1",
    "a simulation": "pos, vel = integrate(pos, vel)",
    "a cache": "logits, cache = decode_step(params, token, cache)",
    "text": "line = clean(line)",
}
BELOW = """
def run_batch(x):
    loss = model(x)
    loss.backward()
    opt.step()

def update_frame(step):
    line.set_ydata(frame)

def everything(x):
    run_batch(x)

def accuracy(params, x, y):
    hidden = predict(params, x)
    return hidden

class Trainer:
    def run_one(self, x):
        self.params = self._apply(self.params, x)
"""


def written(body: str, folder: Path) -> tuple[str, ast.For]:
    file = folder / "job.py"
    text = f"for x in loader:\n{textwrap.indent(body, '    ')}\n{BELOW}"
    file.write_text(text)
    loop = ast.parse(text).body[0]
    assert isinstance(loop, ast.For)
    return str(file), loop


@pytest.mark.parametrize("style", TRAIN)
def test_it_trains(style: str, tmp_path: Path) -> None:
    file, loop = written(TRAIN[style], tmp_path)
    assert trains(file, loop.body)
    assert trains_around(CodeLine(file, 2, "<module>"))


@pytest.mark.parametrize("style", NOT)
def test_it_does_something_else(style: str, tmp_path: Path) -> None:
    file, loop = written(NOT[style], tmp_path)
    assert not trains(file, loop.body)
    assert not trains_around(CodeLine(file, 2, "<module>"))


def test_what_cannot_be_read_is_not_said_to_train() -> None:
    assert not trains_around(CodeLine("/nowhere/train.py", 2, "main"))
