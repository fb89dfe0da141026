"""CPU time of one learner update against LeRobot's SAC, both in one interpreter of LeRobot's environment.

    python -m benchmarks.learner_vs_lerobot --lerobot-python <venv with lerobot 0.6.1>/bin/python

An update = sampling the replay (half demonstrations), random shift, critics, gripper critic, policy,
temperature, targets. Runs alternate A B A B on one thread; process CPU time, so a shared machine distorts little.
"same" is LeRobot's small trainable CNN with 256 x 256 heads, 2 critics and a policy update at every update.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from rl.provenance import RESULTS, ROOT, header, write

BATCH, PROPRIO, ROWS = 64, 24, 400
VIEWS = ("front", "wrist")
Update = Callable[[], object]


def our_update(image_px: int, network: str, directory: Path) -> Update:
    """An update of this project's learner on replay stores in `directory`."""
    import numpy as np
    import torch

    from rl.agent.encoders import EncoderConfig, HeadKind
    from rl.agent.sac import SACAgent, SACConfig
    from rl.agent.spec import AgentSpec, GripperControl
    from rl.replay.mixer import Mixer, Waiting
    from rl.replay.reader import StoreReader
    from rl.replay.sampler import PartConfig, TransitionSampler
    from robot.types import ProprioSpec

    zeros = np.zeros(PROPRIO, np.float32)
    proprio = ProprioSpec([f"x{index}" for index in range(PROPRIO)], zeros, zeros + 1, zeros)
    views = dict.fromkeys(VIEWS, (image_px, image_px))
    match network:
        case "same":  # LeRobot's widths, and its gripper loss reaches the encoder
            encoder = EncoderConfig(
                head=HeadKind.SPATIAL,
                channels=(32, 32, 32, 32),
                kernels=(7, 5, 3, 3),
                strides=(2, 2, 2, 2),
                paddings=(0, 0, 0, 0),
                feature_dim=256,
                spatial_features=8,
                proprio_dim=256,
            )
            config = SACConfig(
                encoder=encoder,
                hidden=256,
                num_critics=2,
                policy_every=1,
                grad_clip=40.0,
                gripper_trains_encoder=True,
            )
        case "default":
            config = SACConfig()
        case "default, bf16":
            config = SACConfig(encoder=EncoderConfig(bf16=True))
        case _:
            raise ValueError(f"network: expected same, default or default, bf16, got {network}")
    spec = AgentSpec(views, proprio, GripperControl.DISCRETE)
    agent = SACAgent(config, spec, device=torch.device("cpu"), seed=0)
    rng = np.random.default_rng(0)
    samplers = {}
    for share in ("demo", "online"):
        path = directory / f"{share}-{image_px}"
        if not path.exists():
            _fill_store(path, views, proprio)
        reader = StoreReader(path)
        reader.refresh()
        samplers[share] = TransitionSampler([PartConfig(reader)])
    mixer = Mixer(samplers)

    def update() -> None:
        batch = mixer.sample(BATCH, {"demo": 0.5, "online": 0.5}, rng)
        if isinstance(batch, Waiting):
            raise RuntimeError(f"the stores should be full, but {batch}")
        agent.update(batch)

    return update


def _fill_store(path: Path, views: dict[str, tuple[int, int]], proprio: Any) -> None:
    import numpy as np

    from rl.replay.journal import EndReason, EpisodeOutcome
    from rl.replay.schema import StoreSchema
    from rl.replay.writer import StoreWriter
    from robot.types import Observation, Transition

    rng = np.random.default_rng(0)

    def observe(step: int) -> Observation:
        images = {view: rng.integers(0, 256, (*size, 3), np.uint8) for view, size in views.items()}
        return Observation(images, rng.normal(size=PROPRIO).astype(np.float32), 0.1 * step)

    with StoreWriter(path, StoreSchema("benchmark", views, proprio)) as writer:
        for first in range(0, ROWS, 100):
            observation = observe(first)
            writer.begin_episode(observation)
            for step in range(first + 1, first + 101):
                action = rng.uniform(-1, 1, 7).astype(np.float32)
                action[6] = rng.integers(-1, 2)
                following, last = observe(step), step == first + 100
                writer.add(Transition(observation, action, action, float(last), following, last, False))
                observation = following
            writer.end_episode(EpisodeOutcome(EndReason.SUCCESS))


def lerobot_update(image_px: int) -> Update:
    """An update of LeRobot's SAC: small CNN, trainable; discrete gripper, 2 critics, storage on the CPU."""
    import torch
    from lerobot.configs.types import FeatureType, PolicyFeature
    from lerobot.policies.gaussian_actor.configuration_gaussian_actor import GaussianActorConfig
    from lerobot.policies.gaussian_actor.modeling_gaussian_actor import GaussianActorPolicy
    from lerobot.rl.algorithms.sac.configuration_sac import SACAlgorithmConfig
    from lerobot.rl.algorithms.sac.sac_algorithm import SACAlgorithm
    from lerobot.rl.data_sources import OnlineOfflineMixer

    torch.manual_seed(0)
    keys = [f"observation.images.{view}" for view in VIEWS]
    image = PolicyFeature(type=FeatureType.VISUAL, shape=(3, image_px, image_px))
    inputs = dict.fromkeys(keys, image)
    inputs["observation.state"] = PolicyFeature(type=FeatureType.STATE, shape=(PROPRIO,))
    config = GaussianActorConfig(
        input_features=inputs,
        output_features={"action": PolicyFeature(type=FeatureType.ACTION, shape=(6,))},
        num_discrete_actions=3,
        vision_encoder_name=None,
        freeze_vision_encoder=False,
        device="cpu",
        storage_device="cpu",
    )
    policy = GaussianActorPolicy(config)
    policy.train()
    settings = SACAlgorithmConfig.from_policy_config(config)
    settings.num_critics, settings.num_subsample_critics, settings.utd_ratio = 2, None, 1
    algorithm = SACAlgorithm(policy=policy, config=settings)
    algorithm.make_optimizers_and_scheduler()
    buffers = [_fill_lerobot(image_px, keys) for _ in range(2)]
    batches: Iterator[Any] = OnlineOfflineMixer(*buffers, online_ratio=0.5).get_iterator(
        BATCH, async_prefetch=False
    )
    return lambda: algorithm.update(batches)


def _fill_lerobot(image_px: int, keys: list[str]) -> Any:
    import torch
    from lerobot.rl.buffer import ReplayBuffer

    state_keys = [*keys, "observation.state"]
    buffer = ReplayBuffer(
        capacity=ROWS, device="cpu", storage_device="cpu", optimize_memory=True, state_keys=state_keys
    )

    def observe() -> dict[str, torch.Tensor]:
        images = {key: torch.rand(1, 3, image_px, image_px) for key in keys}
        return {**images, "observation.state": torch.rand(1, PROPRIO)}

    for _ in range(ROWS):
        action = torch.rand(1, 7) * 2 - 1
        action[:, -1] = float(torch.randint(0, 3, ()))
        buffer.add(
            state=observe(),
            action=action,
            reward=0.0,
            next_state=observe(),
            done=False,
            truncated=False,
            complementary_info={"discrete_penalty": torch.zeros(1)},
        )
    return buffer


def cpu_ms(update: Update, count: int) -> float:
    """CPU milliseconds of one update, averaged over `count`."""
    start = time.process_time()
    for _ in range(count):
        update()
    return 1e3 * (time.process_time() - start) / count


def compare(image_px: int, network: str, theirs: Update, repeats: int, directory: Path) -> dict[str, Any]:
    """One row: medians over `repeats` alternations, and the median, least and greatest ratio of a pair."""
    import torch

    ours = our_update(image_px, network, directory)
    for update in (ours, theirs, ours, theirs):  # the first calls allocate, compile and choose kernels
        update()
    pairs = [(cpu_ms(ours, 5), cpu_ms(theirs, 1 if image_px > 64 else 3)) for _ in range(repeats)]
    ratios = [lerobot / our for our, lerobot in pairs]
    columns = {"ours_ms": [our for our, _ in pairs], "lerobot_ms": [lerobot for _, lerobot in pairs]}
    row: dict[str, Any] = {"image_px": image_px, "batch": BATCH, "network": network}
    for name, values in {**columns, "ratio": ratios}.items():
        row[name] = round(statistics.median(values), 2)
        row[f"{name}_min"], row[f"{name}_max"] = round(min(values), 2), round(max(values), 2)
    return {**row, "threads": torch.get_num_threads(), "repeats": repeats}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument(
        "--lerobot-python", type=Path, help="interpreter of an environment with lerobot 0.6.1"
    )
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--sizes", type=int, nargs="+", default=[64, 128], help="image side, pixels")
    parser.add_argument("--output", type=Path, default=RESULTS / "learner_vs_lerobot.json")
    arguments = parser.parse_args()
    if importlib.util.find_spec("lerobot") is None:
        if arguments.lerobot_python is None:
            parser.error(
                "lerobot is not installed here: name an interpreter that has it with --lerobot-python"
            )
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        command = [str(arguments.lerobot_python), "-m", "benchmarks.learner_vs_lerobot", *sys.argv[1:]]
        os.execve(arguments.lerobot_python, command, environment)
    import torch

    torch.set_num_threads(1)
    rows = []
    with tempfile.TemporaryDirectory() as directory:
        for image_px in arguments.sizes:
            theirs = lerobot_update(image_px)
            for network in ("same", "default", "default, bf16"):
                rows.append(compare(image_px, network, theirs, arguments.repeats, Path(directory)))
                print(json.dumps(rows[-1]), flush=True)
    command = f"python -m benchmarks.learner_vs_lerobot --lerobot-python PYTHON --repeats {arguments.repeats}"
    head = header("learner_vs_lerobot", command, ("torch", "numpy", "safetensors", "lerobot"))
    write(arguments.output, head, rows)


if __name__ == "__main__":
    main()
