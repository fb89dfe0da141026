"""pygame, imported lazily, and its one window, which the keyboard and the viewer share."""

from __future__ import annotations

import os
from typing import Any

from robot.interfaces import DeviceError


def load_pygame() -> Any:
    """The pygame module; raises DeviceError where it is not installed."""
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
    # A gamepad must work while another window has the focus.
    os.environ.setdefault("SDL_JOYSTICK_ALLOW_BACKGROUND_EVENTS", "1")
    try:
        import pygame
    except ImportError as error:
        raise DeviceError(
            "keyboard, gamepad and viewer need pygame; install it: pip install 'groundhog[teleop]'"
        ) from error
    return pygame


def start_display(pygame: Any) -> None:
    """Connect to the display and let through the events that devices read; raises DeviceError without one.

    SDL_VIDEODRIVER=dummy asks for no display explicitly and is granted.
    """
    if pygame.display.get_init():
        return
    try:
        pygame.display.init()
    except pygame.error as error:
        raise DeviceError(f"no display ({error}): run on a desktop, or ssh -X into one") from error
    if pygame.display.get_driver() == "offscreen" and "SDL_VIDEODRIVER" not in os.environ:
        pygame.display.quit()
        raise DeviceError("no display (neither DISPLAY nor WAYLAND_DISPLAY leads to one): run on a desktop")
    # Nobody reads the mouse; unread events would fill the queue until keys are dropped.
    pygame.event.set_blocked(None)
    pygame.event.set_allowed(
        [pygame.QUIT, pygame.KEYDOWN, pygame.JOYBUTTONDOWN, pygame.JOYDEVICEADDED, pygame.JOYDEVICEREMOVED]
    )


def open_window(pygame: Any, size: tuple[int, int], title: str) -> Any:
    """The surface of the window at `size` (width, height) [px]; opens it or changes its size where needed."""
    start_display(pygame)
    surface = pygame.display.get_surface()
    if surface is None or surface.get_size() != size:
        surface = pygame.display.set_mode(size)
    pygame.display.set_caption(title)
    return surface
