"""The binary row: an observation and the transition that starts at it, each under its own CRC32.

The images lie beside the row in one file per view; the observation's CRC covers them too.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from rl.replay.schema import StoreSchema
from robot.types import BadDataError, Observation, Provenance, Transition

Records = NDArray[np.void]  # (N,) of `RowCodec.dtype`
RawRow = NDArray[np.uint8]  # the bytes of one row

_CRC_BYTES = 4
_NOT_SYNTHETIC = Provenance()
_PROVENANCE = np.dtype(
    [
        ("source_origin", "<i8"),
        ("source_episode", "<i8"),
        ("source_step", "<i8"),
        ("kind", "<i8"),
        ("perturbation_seed", "<i8"),
        ("world_model_version", "<i8"),
        ("reward_model_version", "<i8"),
        ("calibrator_version", "<i8"),
        ("success_prob", "<f8"),
        ("calibrated", "<f8"),
        ("risk", "<f8"),
        ("q", "<f8"),
        ("source_q", "<f8"),
        ("admission", "<i8"),
    ]
)
_PROVENANCE_FIELDS = tuple(_PROVENANCE.names or ())


def _observation_dtype(schema: StoreSchema) -> np.dtype[np.void]:
    return np.dtype(
        [
            ("episode", "<i8"),
            ("step", "<i8"),
            ("timestamp", "<f8"),
            ("image_timestamps", "<f8", (len(schema.views),)),
            ("proprio", "<f4", (schema.proprio.dim,)),
        ]
    )


def _transition_dtype(schema: StoreSchema) -> np.dtype[np.void]:
    return np.dtype(
        [
            ("action", "<f4", (schema.action_dim,)),
            ("requested_action", "<f4", (schema.action_dim,)),
            ("reward", "<f4"),
            ("terminated", "?"),
            ("truncated", "?"),
            ("intervened", "?"),
            ("gripper_changed", "?"),
            ("source", "u1"),
            ("label", "i1"),
            ("policy_version", "<i8"),
            ("env_step", "<i8"),
            ("provenance", _PROVENANCE),
        ]
    )


class RowCodec:
    """Turns observations and transitions into row bytes, and tells whether row bytes are whole.

    A row is `observation, observation_crc, transition, transition_crc`. The transition's CRC starts from the
    observation's, so a transition never passes beside an observation it was not written for.
    """

    def __init__(self, schema: StoreSchema) -> None:
        self._schema = schema
        observation, transition = _observation_dtype(schema), _transition_dtype(schema)
        self.dtype: np.dtype[np.void] = np.dtype(
            [
                ("observation", observation),
                ("observation_crc", "<u4"),
                ("transition", transition),
                ("transition_crc", "<u4"),
            ]
        )
        self._observation_bytes = observation.itemsize
        self.transition_offset = observation.itemsize + _CRC_BYTES  # bytes from the start of a row
        self._observation = np.zeros(1, observation)
        self._transition = np.zeros(1, transition)

    def check_observation(self, observation: Observation) -> None:
        """Raise BadDataError where the observation is not finite or not what the schema announces."""
        observation.check()
        shapes = {view: image.shape[:2] for view, image in observation.images.items()}
        if shapes != self._schema.views:
            raise BadDataError(
                f"observation.images: expected (H, W) {dict(self._schema.views)}, got {shapes}; "
                "check the cameras against the store's schema"
            )
        if observation.proprio.shape != (self._schema.proprio.dim,):
            raise BadDataError(
                f"observation.proprio: expected ({self._schema.proprio.dim},) for "
                f"{list(self._schema.proprio.names)}, got {observation.proprio.shape}"
            )

    def check_transition(self, transition: Transition) -> None:
        """Raise BadDataError where the transition or its next observation must not be stored."""
        transition.check()
        for name in ("action", "requested_action"):
            shape = getattr(transition, name).shape
            if shape != (self._schema.action_dim,):
                raise BadDataError(f"{name}: expected ({self._schema.action_dim},), got {shape}")
        self.check_observation(transition.next_observation)

    def encode_observation(
        self, observation: Observation, images: Sequence[NDArray[np.uint8]], episode: int, step: int
    ) -> tuple[bytes, int]:
        """The observation half of a row and its CRC; `images` in the order of the schema, contiguous."""
        record = self._observation
        record["episode"], record["step"] = episode, step
        record["timestamp"] = observation.timestamp
        record["image_timestamps"] = [observation.image_timestamps.get(v, np.nan) for v in self._schema.views]
        record["proprio"] = observation.proprio
        payload = record.tobytes()
        crc = _observation_crc(payload, images)
        return payload + crc.to_bytes(_CRC_BYTES, "little"), crc

    def encode_transition(self, transition: Transition, env_step: int, observation_crc: int) -> bytes:
        """The transition half of the row whose observation has `observation_crc`."""
        record = self._transition
        for name in ("action", "requested_action", "reward", "terminated", "truncated", "intervened"):
            record[name] = getattr(transition, name)
        for name in ("gripper_changed", "source", "label", "policy_version"):
            record[name] = getattr(transition, name)
        record["env_step"] = env_step
        provenance = transition.provenance or _NOT_SYNTHETIC
        record["provenance"] = tuple(getattr(provenance, name) for name in _PROVENANCE_FIELDS)
        return _seal(record.tobytes(), observation_crc)

    def mark_truncated(self, half: bytes, observation_crc: int) -> bytes:
        """The transition half `half`, now truncated, with its new CRC."""
        record = np.frombuffer(half[:-_CRC_BYTES], self._transition.dtype).copy()
        record["truncated"] = True
        return _seal(record.tobytes(), observation_crc)

    def observation_whole(self, row: RawRow, images: Mapping[str, NDArray[np.uint8]]) -> bool:
        """The observation half and its images match their CRC."""
        payload = row[: self._observation_bytes]
        stored = int(row.view(self.dtype)["observation_crc"][0])
        return _observation_crc(payload.tobytes(), [images[view] for view in self._schema.views]) == stored

    def transition_whole(self, row: RawRow) -> bool:
        """The transition half matches its CRC; a row without a transition (all zero) does not."""
        record = row.view(self.dtype)
        payload = row[self.transition_offset : -_CRC_BYTES]
        return zlib.crc32(payload.data, int(record["observation_crc"][0])) == int(record["transition_crc"][0])


def provenance_of(record: np.void) -> Provenance:
    """The provenance columns of one row as the shared noun."""
    columns = record["transition"]["provenance"]
    return Provenance(**{name: columns[name].item() for name in _PROVENANCE_FIELDS})


def _observation_crc(payload: bytes, images: Sequence[NDArray[np.uint8]]) -> int:
    crc = zlib.crc32(payload)
    for image in images:
        crc = zlib.crc32(image.data, crc)
    return crc


def _seal(payload: bytes, observation_crc: int) -> bytes:
    return payload + zlib.crc32(payload, observation_crc).to_bytes(_CRC_BYTES, "little")
