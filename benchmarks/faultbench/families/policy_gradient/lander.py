import numpy as np


class VecLander:
    """N little rockets that try to land on the origin, all advanced together.

    State: x, y, vx, vy, angle, spin.   Actions: 0 coast, 1 main engine, 2 turn left, 3 turn right.
    A rocket that landed, crashed, drifted off or ran out of time starts again by itself.
    """
    n_obs, n_act = 7, 4

    def __init__(self, n, seed=0, max_steps=300):
        self.n = n
        self.rng = np.random.default_rng(seed)
        self.max_steps = max_steps
        self.s = np.zeros((n, 6), dtype=np.float32)
        self.t = np.zeros(n, dtype=np.int64)
        self.score = np.zeros(n, dtype=np.float32)
        self._spawn(np.ones(n, dtype=bool))

    def _spawn(self, mask):
        k = int(mask.sum())
        low = np.array([-1.0, 1.0, -0.3, -0.3, -0.2, -0.1], dtype=np.float32)
        high = np.array([1.0, 1.5, 0.3, 0.0, 0.2, 0.1], dtype=np.float32)
        self.s[mask] = low + (high - low) * self.rng.random((k, 6), dtype=np.float32)
        self.t[mask] = 0
        self.score[mask] = 0.0

    def observe(self):
        obs = np.empty((self.n, self.n_obs), dtype=np.float32)
        obs[:, :6] = self.s
        obs[:, 6] = self.t / self.max_steps
        #@ sample array=obs
        return obs

    def _potential(self):
        x, y, vx, vy, a, w = self.s.T
        return -(np.hypot(x, y) + 0.5 * np.hypot(vx, vy) + 0.3 * np.abs(a))

    def step(self, action, dt=0.04):
        before = self._potential()
        x, y, vx, vy, a, w = self.s.T  # views into self.s
        thrust = np.where(action == 1, np.float32(2.0), np.float32(0.0))
        torque = np.where(action == 2, np.float32(1.5), np.float32(0.0)) - np.where(action == 3, np.float32(1.5), np.float32(0.0))
        w += dt * torque
        a += dt * w
        vx += dt * (-np.sin(a) * thrust)
        vy += dt * (np.cos(a) * thrust - 1.0)
        x += dt * vx
        y += dt * vy
        self.t += 1

        reward = (self._potential() - before) * 5.0 - 0.01 * (action == 1)
        down = y <= 0.0
        soft = down & (np.abs(vx) < 0.4) & (vy > -0.6) & (np.abs(a) < 0.4) & (np.abs(x) < 0.4)
        lost = (np.abs(x) > 2.5) | (y > 3.0)
        reward = (reward + 10.0 * soft - 5.0 * ((down & ~soft) | lost)).astype(np.float32)
        done = down | lost | (self.t >= self.max_steps)

        self.score += reward
        finished = self.score[done]
        if finished.size:
            self._spawn(done)
        return self.observe(), reward, done.astype(np.float32), finished
