"""The mapping config: which feature of a dataset is which view, state, action, reward, in which units and frames."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from robot.geometry import DeltaFrame
from robot.types import Source


class Crop(Enum):
    """What part of a frame is kept before it is resized."""

    NONE = "none"  # all of it; the aspect ratio may change
    CENTER = "center"  # the largest part with the aspect ratio of the store's images


class RotationKind(Enum):
    """How a rotation is written."""

    NONE = "none"
    ROTVEC = "rotvec"  # 3: axis times angle
    EULER = "euler"  # 3: in `euler_order`
    QUAT_XYZW = "quat_xyzw"  # 4
    QUAT_WXYZ = "quat_wxyz"  # 4
    SIX_D = "six_d"  # 6: the first two columns of the rotation matrix, one after the other

    @property
    def width(self) -> int:
        return {"none": 0, "rotvec": 3, "euler": 3, "quat_xyzw": 4, "quat_wxyz": 4, "six_d": 6}[self.value]


class ActionSource(Enum):
    """Where the action comes from."""

    DELTA = "delta"  # the dataset holds how the pose is to change
    ABSOLUTE = "absolute"  # the dataset holds the pose to reach
    DERIVED = "derived"  # no action in the dataset: the motion from this state to the next


@dataclass(frozen=True)
class View:
    """One view of a store: its feature, the stored size [px], and the part of a frame that is kept.

    box: top, left, height, width [px]; given, it takes the place of `crop`.
    """

    feature: str
    height: int
    width: int
    crop: Crop = Crop.NONE
    box: tuple[int, ...] = ()


@dataclass(frozen=True)
class PoseConfig:
    """Which entries are the tool's pose. An entry is a name or an index, or `feature:entry` of another feature.

    metres, radians: the unit of the numbers (0.001 for millimetres, 0.017453293 for degrees). euler_order: as
    SciPy writes it, `xyz` about fixed axes, `XYZ` about moving ones.
    """

    position: list[str] = field(default_factory=list)
    rotation: list[str] = field(default_factory=list)
    kind: RotationKind = RotationKind.NONE
    euler_order: str = ""
    metres: float = 1.0
    radians: float = 1.0

    def __post_init__(self) -> None:
        if len(self.position) not in (0, 3):
            raise ValueError(f"pose.position: expected 3 entries or none, got {list(self.position)}")
        if len(self.rotation) != self.kind.width:
            raise ValueError(
                f"pose.rotation: kind {self.kind.value} has {self.kind.width} entries, got {list(self.rotation)}"
            )
        order = self.euler_order
        if (self.kind is RotationKind.EULER) != bool(order):
            raise ValueError("pose.euler_order: needed for kind=euler and only there, such as xyz or ZYX")
        if order and (len(order) != 3 or not (set(order) <= set("xyz") or set(order) <= set("XYZ"))):
            raise ValueError(f"pose.euler_order: expected three of xyz or three of XYZ, got {order!r}")
        if self.rotation and not self.position:
            raise ValueError("pose.rotation: given without a position")
        if not (self.metres > 0 and self.radians > 0):
            raise ValueError("pose: metres and radians are units and must be > 0")


@dataclass(frozen=True)
class GripperConfig:
    """The entry of the gripper (none: no gripper), and its values when closed and when open."""

    entry: str | None = None
    closed: float = 0.0
    open: float = 1.0

    def __post_init__(self) -> None:
        if self.closed == self.open:
            raise ValueError(f"gripper: closed and open must differ, got {self.closed} for both")


@dataclass(frozen=True)
class StateConfig:
    """From the dataset's state to the store's proprio: pose, joints, gripper opening, in this order.

    reference: rotation vector [rad] from which the stored rotation is measured, so that a tool that points
    down does not jump between +pi and -pi; without it, the mean rotation of all states.
    """

    feature: str = "observation.state"
    pose: PoseConfig = field(default_factory=PoseConfig)
    joints: list[str] = field(default_factory=list)
    joint_unit: float = 1.0  # rad (or m) of one unit of the joints' numbers
    gripper: GripperConfig = field(default_factory=GripperConfig)
    reference: list[float] | None = None

    @property
    def empty(self) -> bool:
        return not (self.pose.position or self.joints or self.gripper.entry is not None)

    def __post_init__(self) -> None:
        if self.reference is not None and len(self.reference) != 3:
            raise ValueError(f"state.reference: expected a rotation vector, got {list(self.reference)}")


@dataclass(frozen=True)
class ActionConfig:
    """From the dataset's action to the store's: pose delta, joint deltas, gripper, each in [-1, 1].

    frame: axes of the stored delta. dataset_frame: axes of the dataset's delta. A gripper value is the opening to
    reach; it is stored as -1 closed, +1 open. metres, radians: the motion that is stored as 1; without them,
    each entry is scaled by the `percentile` of its absolute values, and what lies beyond is clipped (the
    store's requested_action keeps it whole).
    """

    source: ActionSource = ActionSource.DELTA
    feature: str = "action"
    pose: PoseConfig = field(default_factory=PoseConfig)
    joints: list[str] = field(default_factory=list)
    joint_unit: float = 1.0
    gripper: GripperConfig = field(default_factory=GripperConfig)
    frame: DeltaFrame = DeltaFrame.BASE
    dataset_frame: DeltaFrame = DeltaFrame.BASE
    metres: float | None = None
    radians: float | None = None
    percentile: float = 99.5

    def __post_init__(self) -> None:
        if self.source is ActionSource.DERIVED and (
            self.pose.position or self.joints or self.gripper.entry is not None
        ):
            raise ValueError(
                "action.source=derived takes all from the state; leave pose, joints, gripper out"
            )
        if (self.metres is None) != (self.radians is None):
            raise ValueError("action.metres and action.radians: expected both or neither")
        if self.metres is not None and self.radians is not None and min(self.metres, self.radians) <= 0:
            raise ValueError("action.metres and action.radians: expected > 0")
        if not 50.0 <= self.percentile <= 100.0:
            raise ValueError(f"action.percentile: expected 50 to 100, got {self.percentile}")


@dataclass(frozen=True)
class MappingConfig:
    """How a LeRobot dataset becomes a replay store.

    views: the store's view name -> image feature. height, width: of the stored images [px]. crop: of every view;
    boxes: view name -> [top, left, height, width] [px] of the frame, for views that are cut otherwise.
    reward: missing from the dataset, it is 0. assume_success: a dataset of demonstrations without rewards whose
    episodes all succeed: the last step is rewarded with 1. An episode is `terminated` only where the reward of
    its last step is > 0, else `truncated`. intervention: steps in which a person corrected the policy.
    """

    task: str = "dataset"
    views: dict[str, str] = field(default_factory=dict)
    height: int = 128
    width: int = 128
    crop: Crop = Crop.NONE
    boxes: dict[str, list[int]] = field(default_factory=dict)
    state: StateConfig = field(default_factory=StateConfig)
    action: ActionConfig = field(default_factory=ActionConfig)
    reward: str = "next.reward"
    assume_success: bool = False
    intervention: str = "complementary_info.is_intervention"
    source: Source = Source.DEMO
    tolerance_s: float = 1e-4  # by which a frame's time may differ from its row's

    def resolved_views(self) -> dict[str, View]:
        """Every view with all that concerns it."""
        return {
            name: View(feature, self.height, self.width, self.crop, tuple(self.boxes.get(name, ())))
            for name, feature in self.views.items()
        }

    def __post_init__(self) -> None:
        if min(self.height, self.width) < 1:
            raise ValueError(f"mapping: expected height and width >= 1 px, got {self.height} x {self.width}")
        for name, box in self.boxes.items():
            if name not in self.views:
                raise ValueError(f"mapping.boxes: {name} is no view; known: {', '.join(self.views)}")
            if len(box) != 4 or min(box) < 0 or min(box[2:]) < 1:
                raise ValueError(
                    f"mapping.boxes.{name}: expected [top, left, height, width] in px, got {list(box)}"
                )
        if self.source not in (Source.REAL, Source.DEMO):
            raise ValueError(f"source: expected real or demo, got {self.source.name.lower()}")
        if not 0 < self.tolerance_s < 0.1:
            raise ValueError(f"tolerance_s: expected 0 to 0.1 s, got {self.tolerance_s}")
