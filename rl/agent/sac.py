"""SACAgent: soft actor-critic with prior data (as in RLPD and HIL-SERL), the learner's update.

Flow: Batch -> Staging (random shift) -> encoder (and hindsight head) -> critics -> policy (and gripper policy) ->
temperature.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from rl.agent import gripper
from rl.agent.acting import ActingConfig, ActingPolicy
from rl.agent.adam import AdamGroup, load_optimiser
from rl.agent.averaging import WeightAverage
from rl.agent.distribution import SATURATED, Certainty
from rl.agent.networks import EnsembleMLP
from rl.agent.spec import AgentSpec
from rl.agent.staging import EXPERTS, StagedObservation, StagedStep, Staging
from rl.agent.state import AgentState
from rl.agent.weights import copied
from rl.batch import Batch
from robot.types import Float32, Observation, Source


@dataclass(frozen=True)
class SACConfig(ActingConfig):
    """Hyper-parameters of the update.

    discount: per control step. n_step: control steps that a target looks ahead, with their real rewards.
    tau: share of the online critic that enters the target per update. policy_average: share of the newest weights that
    enters, per update, the average which acts; 0 = the newest weights act.
    lr: of every Adam; bc_lr: of the behaviour-cloning warm start.
    num_min_critics: size of the random subset of critics whose minimum is the target.
    policy_every: critic updates per policy update. backup_entropy: entropy bonus in the target.
    target_entropy_per_dim: nats per action dimension. augment_px: largest shift, pixels.
    gripper_penalty: taken from the reward for each change of a discrete gripper's state.
    synthetic_trains_policy: imagined states train policy and temperature too, not the critics alone.
    synthetic_imitated: imagined transitions enter the behaviour-cloning terms and nothing else; all must be successes.
    bc_weight falls linearly to bc_weight_final over bc_decay_updates; it holds the policy near demonstrated
    and corrected actions. grad_clip: largest gradient norm per optimiser, None for no limit.
    """

    discount: float = 0.97
    n_step: int = 1
    tau: float = 0.005
    policy_average: float = 0.0
    lr: float = 3e-4
    bc_lr: float = 5e-4
    num_critics: int = 4
    num_min_critics: int = 2
    policy_every: int = 2
    backup_entropy: bool = False
    target_entropy_per_dim: float = -0.5
    temperature_init: float = 0.01
    gripper_penalty: float = 0.02
    synthetic_trains_policy: bool = False
    synthetic_imitated: bool = False
    augment_px: int = 4
    bc_weight: float = 0.0
    bc_weight_final: float = 0.0
    bc_decay_updates: int = 3000
    grad_clip: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        checks = {
            "discount in [0, 1)": 0.0 <= self.discount < 1.0,
            "n_step in [1, 255]": 1 <= self.n_step <= 255,
            "tau in (0, 1]": 0.0 < self.tau <= 1.0,
            "policy_average in [0, 1]": 0.0 <= self.policy_average <= 1.0,
            "lr > 0": self.lr > 0.0,
            "bc_lr > 0": self.bc_lr > 0.0,
            "1 <= num_min_critics <= num_critics": 1 <= self.num_min_critics <= self.num_critics,
            "policy_every >= 1": self.policy_every >= 1,
            "temperature_init > 0": self.temperature_init > 0.0,
            "gripper_penalty >= 0": self.gripper_penalty >= 0.0,
            "augment_px >= 0": self.augment_px >= 0,
            "bc_weight >= bc_weight_final >= 0": self.bc_weight >= self.bc_weight_final >= 0.0,
            "bc_decay_updates >= 1": self.bc_decay_updates >= 1,
            "bc_weight_final > 0 with synthetic_imitated": self.bc_weight_final > 0.0
            or not self.synthetic_imitated,
            "synthetic_trains_policy or synthetic_imitated, not both": not (
                self.synthetic_trains_policy and self.synthetic_imitated
            ),
            "grad_clip > 0 or None": self.grad_clip is None or self.grad_clip > 0.0,
        }
        failed = [rule for rule, holds in checks.items() if not holds]
        if failed:
            raise ValueError(f"SACConfig: expected {'; '.join(failed)}, got {self}")


class SACAgent:
    """Two verbs: `act` on an observation, `update` on a batch. Holds all learned state of a run.

    acting: the policy that learns. robot_policy: the one that a robot runs, and that is judged: the running average of
    `acting` where `config.policy_average` > 0, otherwise `acting` itself.
    """

    def __init__(self, config: SACConfig, spec: AgentSpec, *, device: torch.device, seed: int) -> None:
        load_optimiser()
        self.config = config
        self.spec = spec
        self.device = device
        self.updates = 0
        self.acting = ActingPolicy(config, spec, device=device, seed=seed)
        critic_seed, noise_seed, shift_seed = np.random.SeedSequence(seed).generate_state(3).tolist()
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(critic_seed)
            self.critic = EnsembleMLP(config.num_critics, self.acting.critic_dim, config.hidden, 1).to(device)
        self.target_critic = copy.deepcopy(self.critic)
        gripper_parameters = list(self.acting.gripper.parameters()) if self.acting.gripper else []
        self.log_temperature = nn.Parameter(torch.tensor(math.log(config.temperature_init), device=device))
        self.target_entropy = config.target_entropy_per_dim * spec.policy_dim
        encoder, policy = self.acting.encoder.shared_parameters(), list(self.acting.policy.parameters())
        clip = config.grad_clip
        self._adams = {
            "critic": AdamGroup([*encoder, *self.critic.parameters()], config.lr, clip),
            "policy": AdamGroup(policy, config.lr, clip),
            "temperature": AdamGroup([self.log_temperature], config.lr, clip),
            "cloning": AdamGroup([*encoder, *policy, *gripper_parameters], config.bc_lr, clip),
        }
        if self.acting.gripper is not None:
            self._adams["gripper"] = AdamGroup(gripper_parameters, config.lr, clip)
        if self.acting.encoder.hindsight is not None:
            self._adams["hindsight"] = AdamGroup(self.acting.encoder.hindsight.parameters(), config.lr, clip)
        self.robot_policy = self.acting
        self._average: WeightAverage | None = None
        if config.policy_average:
            self.robot_policy = ActingPolicy(config, spec, device=device, seed=seed).requires_grad_(False)
            average, live = self.robot_policy.learned(), self.acting.learned()
            self._average = WeightAverage(average, live, config.policy_average)
        experts = (*EXPERTS, Source.SYNTHETIC) if config.synthetic_imitated else EXPERTS
        self._staging = Staging(spec, config.augment_px, device, experts)
        self._generator = torch.Generator(device).manual_seed(noise_seed)
        self._rng = np.random.default_rng(shift_seed)
        critics = nn.ModuleDict({"critic": self.critic, "target_critic": self.target_critic})
        self._state = AgentState(
            acting=self.acting,
            average=self.robot_policy.learned() if self._average is not None else {},
            networks={**critics.state_dict(), "log_temperature": self.log_temperature},
            generators={"update": self._generator, "act": self.robot_policy.generator},
            adams=self._adams,
            shifts=self._rng,
        )

    def act(self, observation: Observation, *, noise: Float32 | None = None) -> Float32:
        """The action (7,) of the policy that a robot runs; see `ActingPolicy.act`."""
        return self.robot_policy.act(observation, noise=noise)

    def policy_tensors(self) -> dict[str, Tensor]:
        """A copy of what an actor's `ActingPolicy.load_tensors` takes: the weights that a robot runs."""
        return self.robot_policy.tensors()

    def update(self, batch: Batch) -> dict[str, float]:
        """One update of critics and targets, and at every `policy_every`-th one of policy and temperature.

        Returns metrics `learner/...`. Raises ValueError on a batch of another shape, FloatingPointError
        where a loss or its gradient is not finite (that step is then not taken).
        """
        return self._update(batch, (self.updates + 1) % self.config.policy_every == 0)

    def update_critics_only(self, batch: Batch) -> dict[str, float]:
        """As `update`, but policy and temperature stay: the critics' warm start before the first env step."""
        return self._update(batch, False)

    def _update(self, batch: Batch, improve_policy: bool) -> dict[str, float]:
        self.spec.check_batch(batch)
        step = self._staging.step(batch)
        now = self._staging.observation(batch, self._rng)
        features, goal_offset = self.acting.encoder.encode(now.stacks, now.proprio)
        with torch.no_grad():
            following = self._staging.next_observation(batch, self._rng)
            next_features = self.acting.encoder(following.stacks, following.proprio)
            valued = batch.num_real if self.config.synthetic_imitated else len(batch)
            target = self._td_target(step.first(valued), next_features[:valued])
        taken = self.acting.critic_input(features, step.action, step.gripper)
        values = self.critic(taken[:valued]).squeeze(-1)  # (E, B)
        # L_Q = mean_{i, b} w_b (Q_i(s, a) - y)^2
        losses = {"critic": (step.weight[:valued] * (values - target).square()).mean()}
        watched = {"q_mean": values.detach().mean(), "target_mean": target.mean()}
        hindsight, errors = self._hindsight(batch, now, goal_offset)
        metrics = self._descend(losses | hindsight, watched | errors)
        self._track_targets()
        if improve_policy:
            # Whether the policy is sure decides how much may be imagined: imagined states must not decide that in turn.
            trusted = len(batch) if self.config.synthetic_trains_policy else batch.num_real
            cloned = len(batch) if self.config.synthetic_imitated else trusted
            metrics |= self._improve_policy(step.first(cloned), features[:cloned].detach(), trusted)
        if self._average is not None:
            self._average.follow()
        self.updates += 1
        return metrics

    def _td_target(self, step: StagedStep, next_features: Tensor) -> Tensor:
        """y = r + discount^n (1 - terminated) min_{i in M} Q_target_i(s', a'), a' ~ pi(s'); M random. (B,).

        n: steps from s to s', over which r is the discounted sum.
        """
        action, log_prob = self.acting.policy(next_features).sample(self._noise(len(next_features)))
        subset = None
        if self.config.num_min_critics < self.config.num_critics:
            subset = self._rng.choice(
                self.config.num_critics, self.config.num_min_critics, replace=False
            ).tolist()
        joined = self.acting.critic_input(next_features, action, self.acting.commands(next_features))
        values = self.target_critic(joined, subset)
        value = values.squeeze(-1).amin(dim=0)
        if self.config.backup_entropy:
            value = value - self.log_temperature.exp() * log_prob
        reward = step.reward
        if self.acting.gripper is not None:
            reward = reward - self.config.gripper_penalty * step.gripper_changed
        discount = self.config.discount**step.steps
        target: Tensor = reward + discount * step.not_terminated * value
        return target

    def _hindsight(
        self, batch: Batch, now: StagedObservation, predicted: Tensor | None
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """The weighted loss of the hindsight head, and its errors where the batch has goals; {} without a head.

        Its gradient reaches the encoder beside the critic's: both move in the same step.
        """
        head = self.acting.encoder.hindsight
        if head is None or predicted is None:
            return {}, {}
        goal = self._staging.goal(batch)
        offset = head.offset(now.proprio, goal.proprio)
        loss = self.config.hindsight.weight * head.loss(predicted, offset, goal.known)
        errors = head.errors(predicted, offset, goal.known) if batch.goal_known.any() else {}
        return {"hindsight": loss}, errors

    def _improve_policy(self, step: StagedStep, features: Tensor, trusted: int) -> dict[str, float]:
        """L_pi = mean_b [alpha log pi(a|s) - mean_i Q_i(s, a)], L_alpha = -log alpha mean_b [log pi + H].

        Means over the first `trusted` rows, and beside them the cloning terms over all experts among the rows.
        """
        distribution = self.acting.policy(features)
        action, log_prob = distribution.sample(self._noise(len(features)))
        action, log_prob, seen = action[:trusted], log_prob[:trusted], features[:trusted]
        temperature = self.log_temperature.exp().detach()
        value = self.critic(self.acting.critic_input(seen, action, self.acting.commands(seen))).mean()
        policy_loss = temperature * log_prob.mean() - value
        if self.bc_weight > 0.0:
            error = (distribution.mode - step.action).square().sum(-1)
            policy_loss = policy_loss + self.bc_weight * _expert_mean(error, step.expert)
        entropy = -log_prob.detach().mean()
        losses = {
            "policy": policy_loss,
            "temperature": self.log_temperature * (entropy - self.target_entropy),
        }
        if self.acting.gripper is not None:
            losses["gripper"] = self._gripper_loss(step, features, action.detach(), temperature)
        watched = {
            "entropy": entropy,
            "temperature": temperature,
            "policy_std": distribution.log_std.detach()[:trusted].exp().mean(),
            "saturated": (action.detach().abs() > SATURATED).float().mean(),
        }
        return self._descend(losses, watched)

    def _gripper_loss(
        self, step: StagedStep, features: Tensor, action: Tensor, temperature: Tensor
    ) -> Tensor:
        """Mean of `gripper.policy_loss` beside the policy's own `action`, over as many rows, and the cloning term."""
        assert self.acting.gripper is not None
        logits = self.acting.gripper(features)[0]
        rows = len(action)
        with torch.no_grad():
            values = [
                self.critic(
                    self.acting.critic_input(
                        features[:rows], action, torch.full_like(step.gripper[:rows], command)
                    )
                )
                for command in range(len(gripper.COMMANDS))
            ]
        loss = gripper.policy_loss(logits[:rows], torch.cat(values, -1).mean(0), temperature).mean()
        if self.bc_weight > 0.0:
            cloning = gripper.cloning_loss(logits, step.gripper)
            loss = loss + self.bc_weight * _expert_mean(cloning, step.expert)
        return loss

    @property
    def bc_weight(self) -> float:
        """Weight of the behaviour-cloning terms at this update."""
        left = max(0.0, 1.0 - self.updates / self.config.bc_decay_updates)
        return self.config.bc_weight_final + left * (self.config.bc_weight - self.config.bc_weight_final)

    def behaviour_cloning(self, batch: Batch) -> dict[str, float]:
        """One supervised step towards the batch's actions (and goals), through the encoder: a warm start.

        The batch should hold demonstrations and corrections only. Raises as `update` does.
        """
        self.spec.check_batch(batch)
        step = self._staging.step(batch)
        now = self._staging.observation(batch, self._rng)
        features, goal_offset = self.acting.encoder.encode(now.stacks, now.proprio)
        loss = (self.acting.policy(features).mode - step.action).square().sum(-1).mean()
        if self.acting.gripper is not None:
            loss = loss + gripper.cloning_loss(self.acting.gripper(features)[0], step.gripper).mean()
        hindsight, errors = self._hindsight(batch, now, goal_offset)
        metrics = self._descend({"cloning": loss} | hindsight, errors)
        if self._average is not None:
            self._average.restart()
        return metrics

    @torch.inference_mode()
    def q_values(self, batch: Batch) -> NDArray[np.float32]:
        """Q(s, a) of the batch's actions, images unshifted: minimum over the whole ensemble, (B,) float32."""
        self.spec.check_batch(batch)
        now = self._staging.observation(batch, None)
        features = self.acting.encoder(now.stacks, now.proprio)
        step = self._staging.step(batch)
        values = self.critic(self.acting.critic_input(features, step.action, step.gripper))
        result: NDArray[np.float32] = values.squeeze(-1).amin(dim=0).cpu().numpy()
        return result

    @torch.inference_mode()
    def certainty(self, batch: Batch, generator: torch.Generator) -> Certainty:
        """How sure the policy is in the batch's states; draws from `generator` alone and changes nothing."""
        self.spec.check_batch(batch)
        now = self._staging.observation(batch, None)
        distribution = self.acting.policy(self.acting.encoder(now.stacks, now.proprio))
        shape = (len(batch), self.spec.policy_dim)
        noise = torch.randn(shape, generator=generator, device=self.device)
        certainty: Certainty = distribution.certainty(noise)
        return certainty

    def value_tensors(self) -> dict[str, Tensor]:
        """A copy of what `ValueModel.load_tensors` takes: the target critics, and the encoder that they learn with."""
        nets = nn.ModuleDict({"encoder": self.acting.encoder, "critic": self.target_critic})
        return copied(nets.state_dict())

    def _noise(self, rows: int) -> Tensor:
        return torch.randn((rows, self.spec.policy_dim), generator=self._generator, device=self.device)

    def _descend(self, losses: Mapping[str, Tensor], watched: Mapping[str, Tensor]) -> dict[str, float]:
        """One Adam step of each group that `losses` names; returns losses, gradient norms and `watched`.

        All scalars cross to the host together, before the steps, so that nothing non-finite is ever applied.
        """
        groups = [self._adams[name] for name in losses]
        for group in groups:
            group.zero_grad()
        parameters = [parameter for group in groups for parameter in group.parameters]
        torch.autograd.backward(list(losses.values()), inputs=parameters)
        scalars = {f"learner/{name}_loss": loss.detach() for name, loss in losses.items()}
        scalars |= {
            f"learner/{name}_grad_norm": group.clip() for name, group in zip(losses, groups, strict=True)
        }
        scalars |= {f"learner/{name}": value for name, value in watched.items()}
        values = torch.stack(list(scalars.values())).tolist()
        metrics: dict[str, float] = dict(zip(scalars, values, strict=True))
        for name in losses:
            loss, norm = metrics[f"learner/{name}_loss"], metrics[f"learner/{name}_grad_norm"]
            if not (math.isfinite(loss) and math.isfinite(norm)):
                raise FloatingPointError(
                    f"{name} loss is {loss}, its gradient norm {norm}, after {self.updates} updates; the "
                    "step was not taken. Check the batch for NaN, then the learning rate"
                )
        for group in groups:
            group.step()
        return metrics

    def _track_targets(self) -> None:
        """theta_target <- theta_target + tau (theta - theta_target)."""
        online: list[Tensor] = list(self.critic.parameters())
        target: list[Tensor] = list(self.target_critic.parameters())
        with torch.no_grad():
            torch._foreach_lerp_(target, online, self.config.tau)

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Everything an update depends on: copied tensors, and JSON-able counters and NumPy generator state.

        A fresh agent of the same config and spec continues bit by bit after `load_state`.
        """
        return self._state.save(self.updates)

    def load_state(self, tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> None:
        """Continue from `state()`. Everything is checked first: on ValueError nothing has changed."""
        self.updates = self._state.load(tensors, meta)


def _expert_mean(values: Tensor, expert: Tensor) -> Tensor:
    """Mean of `values` (B,) over the rows where `expert` (B,) is 1; 0 where there is none."""
    return (values * expert).sum() / expert.sum().clamp(min=1.0)
