"""AgentState: everything an update depends on, as tensors and JSON and back, for a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rl.agent.acting import ActingPolicy
from rl.agent.adam import AdamGroup
from rl.agent.weights import check_weights, copied

FORMAT = 1
_PREFIXES = ("acting", "average", "generator", "adam")  # of a tensor's name; the others are networks'


@dataclass(frozen=True, eq=False)
class AgentState:
    """The parts of an agent themselves, not copies: what is loaded goes into them.

    acting: the policy that learns. average: averaged weights of it; {} without. networks: what is learned beside it.
    generators, shifts: random numbers of PyTorch and NumPy. adams: optimisers by name.
    """

    acting: ActingPolicy
    average: Mapping[str, Tensor]
    networks: Mapping[str, Tensor]
    generators: Mapping[str, torch.Generator]
    adams: Mapping[str, AdamGroup]
    shifts: np.random.Generator

    def save(self, updates: int) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Copied tensors, and JSON-able counters and NumPy generator state."""
        tensors = copied(self.networks)
        tensors |= _named("acting", self.acting.tensors())
        tensors |= _named("average", copied(self.average))
        tensors |= _named("generator", self._generator_states())
        for group, adam in self.adams.items():
            tensors |= _named(f"adam.{group}", adam.state())
        meta = {"format": FORMAT, "updates": updates, "shifts": self.shifts.bit_generator.state}
        return tensors, meta | {"spec": self.acting.spec.to_json()}

    def load(self, tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> int:
        """Continue from `save`; returns its updates. All is checked first: on ValueError nothing has changed."""
        spec = self.acting.spec.to_json()
        if meta.get("format") != FORMAT:
            raise ValueError(f"agent state: expected format {FORMAT}, got {meta.get('format')}")
        if meta["spec"] != spec:
            raise ValueError(f"agent state: expected spec {spec}, got {meta['spec']}")
        acting, average, generators = (_part(tensors, name) for name in ("acting", "average", "generator"))
        adams = {group: _part(tensors, f"adam.{group}") for group in self.adams}
        networks = {name: tensor for name, tensor in tensors.items() if name.split(".")[0] not in _PREFIXES}
        self.acting.check_tensors(acting)
        check_weights(average, self.average)
        check_weights(generators, self._generator_states())
        check_weights(networks, self.networks)
        for group, state in adams.items():
            check_weights(state, self.adams[group].expected_state() if state else {})
        self.acting.load_tensors(acting)
        with torch.no_grad():
            for name, tensor in self.networks.items():
                tensor.copy_(networks[name])
            for name, tensor in self.average.items():
                tensor.copy_(average[name])
        for name, generator in self.generators.items():
            generator.set_state(generators[name])
        for group, state in adams.items():
            self.adams[group].load_state(state)
        self.shifts.bit_generator.state = meta["shifts"]
        return int(meta["updates"])

    def _generator_states(self) -> dict[str, Tensor]:
        return {name: generator.get_state() for name, generator in self.generators.items()}


def _named(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """`tensors` as `<prefix>.<name>`."""
    return {f"{prefix}.{name}": tensor for name, tensor in tensors.items()}


def _part(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The tensors named `<prefix>.<name>`, by `<name>`."""
    start = f"{prefix}."
    return {name.removeprefix(start): tensor for name, tensor in tensors.items() if name.startswith(start)}
