import argparse
from itertools import count

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim

from lander import VecLander

#@ imports

parser = argparse.ArgumentParser(description='Advantage actor-critic on many landers at once')
parser.add_argument('--scale', type=float, default=1.0, metavar='S',
                    help='multiplies the number of landers (default: 1.0)')
parser.add_argument('--gamma', type=float, default=0.99, metavar='G',
                    help='discount factor (default: 0.99)')
parser.add_argument('--horizon', type=int, default=32, metavar='T',
                    help='environment steps between updates (default: 32)')
parser.add_argument('--entropy', type=float, default=0.01,
                    help='entropy bonus (default: 0.01)')
parser.add_argument('--seed', type=int, default=543, metavar='N',
                    help='random seed (default: 543)')
parser.add_argument('--log-interval', type=int, default=100, metavar='N',
                    help='interval between training status logs (default: 100)')
args = parser.parse_args()

n_envs = max(4, int(384 * args.scale))
torch.manual_seed(args.seed)
device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')
env = VecLander(n_envs, seed=args.seed)


class Policy(nn.Module):
    """Actor and critic share a body."""
    def __init__(self, hidden=192):
        super(Policy, self).__init__()
        self.fc1 = nn.Linear(env.n_obs, hidden)
        self.fc2 = nn.Linear(hidden, hidden)
        self.action_head = nn.Linear(hidden, env.n_act)
        self.value_head = nn.Linear(hidden, 1)

    def forward(self, x):
        #@ forward x=x
        x = torch.tanh(self.fc1(x))
        x = torch.tanh(self.fc2(x))
        return self.action_head(x), self.value_head(x).squeeze(-1)


policy = Policy().to(device)
optimizer = optim.Adam(policy.parameters(), lr=7e-4)

# rollout storage, allocated once
obs_buf = np.zeros((args.horizon, n_envs, env.n_obs), dtype=np.float32)
act_buf = np.zeros((args.horizon, n_envs), dtype=np.int64)
rew_buf = np.zeros((args.horizon, n_envs), dtype=np.float32)
done_buf = np.zeros((args.horizon, n_envs), dtype=np.float32)
stats = {'running': 0.0, 'episodes': 0}


@torch.no_grad()
def select_actions(obs):
    logits, _ = policy(torch.from_numpy(obs).to(device))
    return torch.multinomial(F.softmax(logits, dim=-1), 1).squeeze(-1).cpu().numpy()


@torch.no_grad()
def bootstrap(obs):
    return policy(torch.from_numpy(obs).to(device))[1].cpu().numpy()


def collect(obs):
    """Play `horizon` steps in every environment; one forward pass acts for all of them."""
    for t in range(args.horizon):
        action = select_actions(obs)
        obs_buf[t] = obs
        act_buf[t] = action
        obs, rew_buf[t], done_buf[t], finished = env.step(action)
        if finished.size:
            stats['running'] += 0.01 * (finished.mean() - stats['running'])
            stats['episodes'] += finished.size
    return obs


def discount(last_value):
    returns = np.empty_like(rew_buf)
    R = last_value
    for t in reversed(range(args.horizon)):
        R = rew_buf[t] + args.gamma * R * (1.0 - done_buf[t])
        returns[t] = R
    return returns


def finish_episode(states, actions, returns):
    logits, values = policy(states)
    logp = F.log_softmax(logits, dim=-1)
    chosen = logp.gather(1, actions.unsqueeze(1)).squeeze(1)
    advantage = returns - values.detach()
    advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-6)

    policy_loss = -(chosen * advantage).mean()
    value_loss = F.smooth_l1_loss(values, returns)
    entropy = -(logp.exp() * logp).sum(-1).mean()
    loss = policy_loss + 0.5 * value_loss - args.entropy * entropy

    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(policy.parameters(), 0.5)
    optimizer.step()
    return loss.detach()


def main():
    obs = env.observe()
    #@ setup
    for i_update in count(1):
        obs = collect(obs)
        returns = discount(bootstrap(obs))
        flat_obs = obs_buf.reshape(-1, env.n_obs)
        flat_act = act_buf.reshape(-1)
        flat_ret = returns.reshape(-1)
        #@ batch arrays=flat_obs,flat_act,flat_ret
        states = torch.from_numpy(flat_obs).to(device)
        actions = torch.from_numpy(flat_act).to(device)
        targets = torch.from_numpy(flat_ret).to(device)
        loss = finish_episode(states, actions, targets)

        if i_update % args.log_interval == 0:
            print('Update {}\tLoss: {:.4f}\tEpisodes: {}\tAverage score: {:.2f}'.format(
                i_update, loss.item(), stats['episodes'], stats['running']), flush=True)
        #@ step loss=loss model=policy batch=states,actions,targets opt=optimizer index=i_update


if __name__ == '__main__':
    main()
