"""What the actor runs is what was learnt, and a resumed learner continues bit by bit."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from agent_cases import CPU, TINY, make_agent, make_batch, make_observation, make_spec

from rl import checkpoint
from rl.agent.acting import MODE, ActingPolicy
from rl.agent.sac import SACAgent
from rl.agent.spec import GripperControl
from rl.agent.weights import WeightsError

SETTINGS = {"bc_weight": 0.5, "grad_clip": 10.0, "encoder": TINY}


def make_actor(agent: SACAgent, seed: int = 5) -> ActingPolicy:
    return ActingPolicy(agent.config, agent.spec, device=CPU, seed=seed)


def run(agent: SACAgent, first: int, last: int) -> list[dict[str, float]]:
    return [agent.update(make_batch(seed=seed)) for seed in range(first, last)]


def assert_equal_state(one: SACAgent, other: SACAgent) -> None:
    (tensors, meta), (others, other_meta) = one.state(), other.state()
    assert meta == other_meta and tensors.keys() == others.keys()
    for name in tensors:
        assert torch.equal(tensors[name], others[name]), name


@pytest.mark.parametrize("average", [0.0, 0.1])
@pytest.mark.parametrize("mode", list(GripperControl))
def test_actor_and_learner_act_bit_for_bit_alike(mode: GripperControl, average: float) -> None:
    spec = make_spec(mode)
    agent = make_agent(spec, policy_every=1, policy_average=average)
    for seed in range(3):
        agent.update(make_batch(spec, seed=seed))
    actor = make_actor(agent)
    actor.load_tensors(agent.policy_tensors())
    actor.generator.set_state(agent.robot_policy.generator.get_state())
    for seed in range(4):
        observation = make_observation(spec, seed)
        for noise in (MODE, None):
            expected = agent.act(observation, noise=noise)
            np.testing.assert_array_equal(actor.act(observation, noise=noise), expected)


def test_the_average_follows_the_weights_and_a_warm_start_takes_it_along() -> None:
    agent = make_agent(policy_every=1, policy_average=0.25)
    name = "policy.head.bias"
    agent.behaviour_cloning(make_batch())
    weights = [agent.acting.tensors()[name]]
    assert torch.equal(agent.policy_tensors()[name], weights[0])
    for seed in range(2):
        agent.update(make_batch(seed=seed))
        weights.append(agent.acting.tensors()[name])
    expected = 0.75 * (0.75 * weights[0] + 0.25 * weights[1]) + 0.25 * weights[2]
    torch.testing.assert_close(agent.policy_tensors()[name], expected)
    actor = make_actor(agent)
    actor.load_tensors(agent.policy_tensors())  # whole: encoder and policy of one average


def test_an_average_changes_nothing_of_what_is_learnt() -> None:
    plain, averaged = make_agent(**SETTINGS), make_agent(**SETTINGS, policy_average=0.1)
    assert run(plain, 0, 4) == run(averaged, 0, 4)
    for name, tensor in plain.acting.tensors().items():
        assert torch.equal(tensor, averaged.acting.tensors()[name])


def test_published_tensors_do_not_change_with_later_updates() -> None:
    agent = make_agent(policy_every=1)
    tensors = agent.policy_tensors()
    before = {name: tensor.clone() for name, tensor in tensors.items()}
    agent.update(make_batch())
    assert all(torch.equal(tensors[name], before[name]) for name in before)
    assert not torch.equal(agent.policy_tensors()["policy.head.bias"], before["policy.head.bias"])


def test_bad_weights_are_refused_and_change_nothing() -> None:
    agent = make_agent()
    actor = make_actor(agent)
    good, before = agent.policy_tensors(), actor.tensors()
    name = "policy.trunk.3.weight"
    with_nan = good[name].clone()
    with_nan[0, 0] = float("nan")
    missing = {key: tensor for key, tensor in good.items() if key != name}
    cases = {
        "missing": missing,
        "not expected": {**good, "extra": torch.zeros(1)},
        r"expected \(16, 16\)": {**good, name: torch.zeros(4, 4)},
        "float32": {**good, name: good[name].double()},
        "finite": {**good, name: with_nan},
        "other inputs": {**good, "fingerprint": good["fingerprint"] + 1},
    }
    for message, tensors in cases.items():
        with pytest.raises(WeightsError, match=message):
            actor.load_tensors(tensors)
        assert all(torch.equal(actor.tensors()[key], before[key]) for key in before)
    actor.load_tensors(good)
    assert all(torch.equal(actor.tensors()[key], good[key]) for key in good)


def test_weights_of_another_proprio_scale_are_refused() -> None:
    agent = make_agent()
    proprio = make_spec().proprio
    other = make_spec(proprio=type(proprio)(proprio.names, proprio.offset, 2 * proprio.scale, proprio.fine))
    with pytest.raises(WeightsError, match="other inputs"):
        ActingPolicy(agent.config, other, device=CPU, seed=0).load_tensors(agent.policy_tensors())


@pytest.mark.parametrize("average", [0.0, 0.1])
def test_ten_updates_equal_five_saved_loaded_and_five_more(tmp_path: Path, average: float) -> None:
    settings = SETTINGS | {"policy_average": average}
    straight, first = make_agent(**settings), make_agent(**settings)
    for agent in (straight, first):
        agent.behaviour_cloning(make_batch(seed=99))
    metrics = run(straight, 0, 5) + run(straight, 5, 10)
    run(first, 0, 5)
    first.act(make_observation())
    straight.act(make_observation())
    checkpoint.save(tmp_path, *first.state())
    loaded = checkpoint.load_latest(tmp_path)
    assert loaded is not None
    second = make_agent(seed=77, **settings)
    second.load_state(loaded.tensors, loaded.meta)
    assert run(second, 5, 10) == metrics[5:]
    second.behaviour_cloning(make_batch(seed=98))
    straight.behaviour_cloning(make_batch(seed=98))
    assert_equal_state(straight, second)
    np.testing.assert_array_equal(
        straight.act(make_observation()),
        second.act(make_observation()),
    )


RESUME = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from agent_cases import make_agent, make_batch
from rl import checkpoint
directory = Path(sys.argv[2])
loaded = checkpoint.load_latest(directory)
agent = make_agent(seed=3)
agent.load_state(loaded.tensors, loaded.meta)
for seed in range(5, 10):
    agent.update(make_batch(seed=seed))
checkpoint.save(directory, *agent.state())
"""


def test_resume_in_a_new_process_is_bit_equal(tmp_path: Path) -> None:
    agent = make_agent()
    run(agent, 0, 5)
    checkpoint.save(tmp_path, *agent.state())
    root = Path(__file__).parents[2]
    command = [sys.executable, "-c", RESUME, str(Path(__file__).parent), str(tmp_path)]
    subprocess.run(command, check=True, cwd=root, timeout=120)
    run(agent, 5, 10)
    loaded = checkpoint.load_latest(tmp_path)
    assert loaded is not None and loaded.updates == 10
    other = make_agent(seed=4)
    other.load_state(loaded.tensors, loaded.meta)
    assert_equal_state(agent, other)


def test_state_is_json_and_refuses_another_agent() -> None:
    agent = make_agent()
    agent.update(make_batch())
    tensors, meta = agent.state()
    meta = json.loads(json.dumps(meta))
    with pytest.raises(ValueError, match="expected spec"):
        make_agent(make_spec(GripperControl.FIXED)).load_state(tensors, meta)
    wide = make_agent(hidden=32)
    before = wide.policy_tensors()
    with pytest.raises(ValueError, match="expected"):
        wide.load_state(tensors, meta)
    assert all(torch.equal(wide.policy_tensors()[name], before[name]) for name in before)
    lost = {name: tensor for name, tensor in tensors.items() if name != "adam.critic.0.exp_avg"}
    with pytest.raises(ValueError, match=r"0\.exp_avg"):
        make_agent().load_state(lost, meta)
    with pytest.raises(ValueError, match="format"):
        make_agent().load_state(tensors, {**meta, "format": 0})


def test_same_seed_same_agent_other_seed_another() -> None:
    torch.manual_seed(123)
    probe = torch.rand(1)
    torch.manual_seed(123)
    one, two, three = make_agent(seed=1), make_agent(seed=1), make_agent(seed=2)
    assert torch.equal(torch.rand(1), probe)  # building an agent leaves the global generator alone
    run(one, 0, 2)
    run(two, 0, 2)
    run(three, 0, 2)
    assert_equal_state(one, two)
    assert not torch.equal(
        one.policy_tensors()["policy.head.weight"], three.policy_tensors()["policy.head.weight"]
    )
