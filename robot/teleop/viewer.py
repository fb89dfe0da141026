"""Viewer: a window for the person at the robot: the camera views, who is in charge, and the counters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from robot.teleop.window import load_pygame, open_window
from robot.types import Image

BACKGROUND = (18, 18, 20)
TEXT = (235, 235, 235)
HUMAN_COLOUR = (214, 96, 16)
POLICY_COLOUR = (28, 84, 160)
SUCCESS_COLOUR = (24, 128, 56)
WARNING_COLOUR = (176, 24, 24)


@dataclass(frozen=True, slots=True)
class ViewerConfig:
    """Sizes on the screen."""

    view_height: int = 384  # px of each view; the width follows
    banner_height: int = 64  # px
    footer_height: int = 40  # px

    def __post_init__(self) -> None:
        if min(self.view_height, self.banner_height, self.footer_height) < 16:
            raise ValueError(f"ViewerConfig: expected heights of at least 16 px, got {self}")


class Viewer:
    """Draws into pygame's one window and leaves its events to the keyboard.

    Raises DeviceError where pygame or a display is missing; SDL_VIDEODRIVER=dummy draws without a display.
    """

    def __init__(self, config: ViewerConfig | None = None) -> None:
        self._config = config or ViewerConfig()
        self._pygame: Any = load_pygame()
        self._pygame.font.init()
        self._banner_font = self._pygame.font.Font(None, self._config.banner_height)
        self._footer_font = self._pygame.font.Font(None, self._config.footer_height - 10)
        self._surface = self._window(self._config.view_height)

    def show(
        self,
        images: Mapping[str, Image],
        *,
        intervened: bool,
        success: bool | None = None,
        warning: str = "",
        counters: str = "",
    ) -> None:
        """Draw one step: images view -> (H, W, 3) uint8, side by side; who is in charge; a warning; the counters.

        success: this step ended its episode so.
        """
        config = self._config
        widths = [round(config.view_height * image.shape[1] / image.shape[0]) for image in images.values()]
        self._surface = self._window(max(sum(widths), config.view_height))
        self._surface.fill(BACKGROUND)
        left = 0
        for (view, image), width in zip(images.items(), widths, strict=True):
            picture = self._pygame.image.frombuffer(
                np.ascontiguousarray(image).tobytes(), (image.shape[1], image.shape[0]), "RGB"
            )
            scaled = self._pygame.transform.scale(picture, (width, config.view_height))
            self._surface.blit(scaled, (left, config.banner_height))
            self._text(self._footer_font, view, (left + 8, config.banner_height + 8))
            left += width
        self._draw_banner(intervened, bool(success), warning)
        self._text(self._footer_font, counters, (12, config.banner_height + config.view_height + 10))
        self._pygame.display.flip()
        self._pygame.event.pump()  # a window whose events nobody collects is taken for hung

    def frame(self) -> Image:
        """What the window shows, (H, W, 3) uint8."""
        pixels: Image = self._pygame.surfarray.array3d(self._surface)
        return np.ascontiguousarray(pixels.swapaxes(0, 1))

    def close(self) -> None:
        """Close the window."""
        self._pygame.display.quit()

    def _window(self, width: int) -> Any:
        config = self._config
        height = config.banner_height + config.view_height + config.footer_height
        return open_window(self._pygame, (width, height), "Groundhog")

    def _draw_banner(self, intervened: bool, success: bool, warning: str) -> None:
        colour = HUMAN_COLOUR if intervened else POLICY_COLOUR
        if success:
            colour = SUCCESS_COLOUR
        if warning:
            colour = WARNING_COLOUR
        self._surface.fill(colour, (0, 0, self._surface.get_width(), self._config.banner_height))
        label = ("HUMAN" if intervened else "POLICY") + (": SUCCESS" if success else "")
        label += f": {warning}" if warning else ""
        self._text(self._banner_font, label, (12, 10))

    def _text(self, font: Any, text: str, position: tuple[int, int]) -> None:
        self._surface.blit(font.render(text, True, TEXT), position)
