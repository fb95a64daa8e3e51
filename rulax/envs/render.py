"""Pictures of environments, uint8 [H, W, 3]: what a person sees of an episode.

An environment of your own may have a method `render(task, state)` that returns one. Ours are drawn here; everything else is shown
by its observation: images as they are, planes by colours, vectors as bars.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

import jax
import numpy as np
from PIL import Image, ImageDraw

from rulax.envs.adapters.gymnax import GymnaxEnvironment
from rulax.envs.base import Environment, is_image, is_symbols
from rulax.envs.catch import Catch, CatchState, SeveralCatch
from rulax.envs.chain import ChainState, ChainTask, DelayedChain
from rulax.envs.classic.acrobot import Acrobot
from rulax.envs.classic.cartpole import CartPole
from rulax.envs.classic.mountain_car import MountainCar
from rulax.envs.classic.pendulum import Pendulum
from rulax.envs.distracted import Distracted
from rulax.envs.gridworld import GridState, GridTask, GridWorld
from rulax.envs.hurdles import CELL, LENGTH, Hurdles, HurdlesState
from rulax.envs.key_door import KeyDoor, KeyDoorState, KeyDoorTask
from rulax.envs.lasting import Lasting
from rulax.envs.point import Box, Point, PointTask
from rulax.envs.tasks import EachEpisode, FiniteSet, Mutable, Randomised, Recurring, Trial, WithReward
from rulax.envs.wrappers import Binned, MoreActions, TimeLimit
from rulax.types import PyTree

SIZE = 240  # of the longer side of a picture, about
Colour = tuple[int, int, int]
PAPER, GRID, INK, WALL = (248, 248, 245), (226, 228, 232), (31, 41, 51), (90, 100, 112)
BLUE, GREEN, RED, AMBER = (37, 99, 235), (22, 163, 74), (220, 38, 38), (217, 119, 6)
# For planes and symbols; far enough apart to be told from each other, on a dark ground.
GROUND = (24, 28, 36)
PALETTE = np.array(
    [(86, 180, 233), (230, 159, 0), (0, 158, 115), (240, 228, 66), (213, 94, 0), (204, 121, 167), (148, 163, 184), (255, 255, 255)],
    np.uint8,
)


@runtime_checkable
class Renders(Protocol):
    """An environment that draws itself."""

    def render(self, task: PyTree, state: PyTree) -> np.ndarray:
        """A picture, uint8 [H, W, 3]; called on the host, with NumPy arrays."""


def render(environment: Environment, task: PyTree, state: PyTree, observation: PyTree) -> np.ndarray:
    """A picture of a compiled environment, uint8 [H, W, 3].

    Args:
        environment: of any kind.
        task: its task, as NumPy arrays.
        state: its state.
        observation: what the agent sees there, which is shown where nothing better is known.
    """
    environment, task, state = inside(environment, task, state)
    if isinstance(environment, Renders):
        return np.asarray(environment.render(task, state), np.uint8)
    if isinstance(environment, GymnaxEnvironment):
        draw = CONTROL.get(str(getattr(environment.environment, "name", "")))
        return draw(np.asarray(observation)) if draw else picture_of(environment.observation, observation)
    draw_own = OWN.get(type(environment))
    # Not the observation's form of `environment`, which may be inside of others that show more.
    return draw_own(environment, task, state) if draw_own else picture_of(None, observation)


def inside(environment: Any, task: PyTree, state: PyTree) -> tuple[Any, PyTree, PyTree]:
    """The environment inside of wrappers whose state we know how to open, with its task and state."""
    while not isinstance(environment, Renders):
        if isinstance(environment, TimeLimit | Lasting):
            environment, state = environment.environment, state.env_state
        elif isinstance(environment, Trial | EachEpisode):
            environment, task, state = environment.environment, state.task, state.env_state
        elif isinstance(environment, Recurring):
            environment, task, state = environment.environment, environment._task(state), state.env_state
        elif isinstance(environment, Binned | MoreActions | Distracted | Randomised | WithReward | FiniteSet | Mutable):
            environment = environment.environment
        else:
            break
    return environment, task, state


# -- observations --------------------------------------------------------------------------------------------------------------


def picture_of(form: Any, observation: PyTree, frames: int = 1) -> np.ndarray:
    """Any observation as a picture.

    Args:
        form: its shapes and dtypes; None means those of the arrays themselves.
        observation: an array, or a dictionary of them.
        frames: how many of them an image is a stack of; the last is shown.
    """
    arrays = [np.asarray(leaf) for leaf in jax.tree.leaves(observation)]
    forms = jax.tree.leaves(form) if form is not None else [jax.ShapeDtypeStruct(each.shape, each.dtype) for each in arrays]
    images = [(each, leaf) for each, leaf in zip(arrays, forms, strict=True) if is_image(leaf)]
    if not images:
        return bars(np.concatenate([each.reshape(-1).astype(np.float64) for each in arrays] or [np.zeros(1)]))
    array, leaf = max(images, key=lambda pair: pair[0].size)
    if is_symbols(leaf):
        codes = array if array.ndim == 2 else array[..., -1]
        return enlarged(PALETTE[(codes.astype(np.int64) * 7) % len(PALETTE)] * (codes != 0)[..., None])
    shown = array[..., array.shape[-1] - array.shape[-1] // frames :]
    scaled = shown.astype(np.float64) / 255 if shown.dtype == np.uint8 else np.clip(shown, 0, 1)
    if shown.shape[-1] in (1, 3):
        return enlarged(np.broadcast_to((255 * scaled).astype(np.uint8), (*shown.shape[:2], 3)))
    return enlarged(planes(scaled))


def planes(values: np.ndarray) -> np.ndarray:
    """Planes [H, W, C] of numbers from 0 to 1, one colour each; where several meet, the last one shows."""
    picture = np.broadcast_to(np.array(GROUND, np.float64), (*values.shape[:2], 3))
    for channel in range(values.shape[-1]):
        weight = values[..., channel : channel + 1]
        picture = picture * (1 - weight) + PALETTE[channel % len(PALETTE)] * weight
    return picture.astype(np.uint8)


def bars(values: np.ndarray) -> np.ndarray:
    """A vector as bars from a middle line, each from -1 to 1 after v / (1 + |v|); a very long one as a square of cells."""
    known = np.nan_to_num(values, posinf=1e9, neginf=-1e9)
    squashed = known / (1 + np.abs(known))
    if len(squashed) > SIZE // 3:
        side = int(np.ceil(np.sqrt(len(squashed))))
        cells = np.pad(squashed, (0, side * side - len(squashed))).reshape(side, side, 1)
        up, down = np.clip(cells, 0, 1), np.clip(-cells, 0, 1)
        return enlarged((np.array(PAPER) * (1 - up - down) + np.array(BLUE) * up + np.array(RED) * down).astype(np.uint8))
    width, height = SIZE // len(squashed), SIZE // 2
    canvas, draw = sheet(width * len(squashed), height)
    for index, value in enumerate(squashed):
        ends = sorted((height / 2, height / 2 * (1 - value)))
        draw.rectangle((index * width + 1, ends[0], (index + 1) * width - 2, ends[1]), BLUE if value > 0 else RED)
    draw.line((0, height / 2, width * len(squashed), height / 2), INK)
    return np.asarray(canvas)


def enlarged(picture: np.ndarray) -> np.ndarray:
    """A small picture with every pixel as a square, so that it can be seen."""
    factor = max(1, min(24, SIZE // max(picture.shape[:2])))
    return np.ascontiguousarray(picture.astype(np.uint8).repeat(factor, 0).repeat(factor, 1))


# -- boards --------------------------------------------------------------------------------------------------------------------


def board(rows: int, columns: int, squares: dict[tuple[int, int], Colour], discs: dict[tuple[int, int], Colour]) -> np.ndarray:
    """A board with coloured squares, and discs on top of them."""
    cell = max(12, min(24, SIZE // max(rows, columns)))
    canvas, draw = sheet(columns * cell + 1, rows * cell + 1)
    for row in range(rows):
        for column in range(columns):
            box = (column * cell, row * cell, (column + 1) * cell, (row + 1) * cell)
            draw.rectangle(box, squares.get((row, column), PAPER), GRID)
    for (row, column), colour in discs.items():
        edge = cell * 0.15
        draw.ellipse((column * cell + edge, row * cell + edge, (column + 1) * cell - edge, (row + 1) * cell - edge), colour)
    return np.asarray(canvas)


def draw_catch(environment: Catch, task: PyTree, state: CatchState) -> np.ndarray:
    """The paddle in blue, the ball in amber."""
    paddle, ball = (environment.rows - 1, int(state.paddle)), (int(state.ball_row), int(state.ball_column))
    return board(environment.rows, environment.columns, {paddle: BLUE}, {ball: AMBER})


def draw_several(environment: SeveralCatch, task: PyTree, state: CatchState) -> np.ndarray:
    """The games side by side."""
    games = [jax.tree.map(lambda x, game=game: x[game], state) for game in range(environment.games)]
    return np.concatenate([draw_catch(environment.game(), task, each) for each in games], 1)


def draw_grid(environment: GridWorld, task: GridTask, state: GridState) -> np.ndarray:
    """Walls in grey, good objects in green, bad ones in red, the agent as a blue disc."""
    cell = lambda number: (int(number) // environment.width, int(number) % environment.width)  # noqa: E731
    squares = {(int(row), int(column)): WALL for row, column in np.argwhere(np.asarray(task.walls))}
    values = np.asarray(task.value)[environment._kind_of]
    for place, present, value in zip(state.places, state.present, values, strict=True):
        if present:
            squares[cell(place)] = GREEN if value > 0 else RED if value < 0 else GRID
    return board(environment.height, environment.width, squares, {cell(state.agent): BLUE})


def draw_key_door(environment: KeyDoor, task: KeyDoorTask, state: KeyDoorState) -> np.ndarray:
    """The wall in grey, the locked door in red, the key in amber, the goal in green, the agent as a blue disc."""
    cell = lambda number: (int(number) // environment.size, int(number) % environment.size)  # noqa: E731
    squares = {(row, environment.wall): WALL for row in range(environment.size)} | {cell(task.goal): GREEN}
    squares |= {(int(task.door), environment.wall): PAPER if state.has_key else RED}
    squares |= {} if state.has_key else {cell(task.key): AMBER}
    return board(environment.size, environment.size, squares, {cell(state.agent): BLUE})


def draw_chain(environment: DelayedChain, task: ChainTask, state: ChainState) -> np.ndarray:
    """Two branches; the end of the good one is green, that of the other red."""
    length, correct = int(task.length), int(task.correct)
    ends = {(2 * branch, length): GREEN if branch == correct else RED for branch in range(2)}
    ways = {(row, column): GRID for row in (0, 2) for column in range(1, length)} | {(1, 0): GRID}
    row = 1 if int(state.branch) < 0 else 2 * int(state.branch)
    return board(3, length + 1, ways | ends, {(row, min(int(state.steps), length)): BLUE})


# -- mechanics -----------------------------------------------------------------------------------------------------------------


def sheet(width: int, height: int) -> tuple[Image.Image, ImageDraw.ImageDraw]:
    """Empty paper, and what draws on it."""
    canvas = Image.new("RGB", (int(width), int(height)), PAPER)
    return canvas, ImageDraw.Draw(canvas)


def cart_and_pole(position: float, angle: float, half_length: float = 0.5, limit: float = 2.4) -> np.ndarray:
    """CartPole: the cart on its track, between the limits."""
    canvas, draw = sheet(SIZE, SIZE // 2)
    unit, floor = SIZE / (2 * limit), SIZE // 2 - 20
    x = SIZE / 2 + position * unit
    draw.line((0, floor, SIZE, floor), WALL)
    draw.rectangle((x - 15, floor - 10, x + 15, floor), INK)
    length = 2 * half_length * unit * 1.4
    draw.line((x, floor - 10, x + length * np.sin(angle), floor - 10 - length * np.cos(angle)), AMBER, 5)
    return np.asarray(canvas)


def car_on_hill(position: float, left: float = -1.2, right: float = 0.6, goal: float = 0.5) -> np.ndarray:
    """MountainCar: the valley, the car, and a flag where it should go."""
    canvas, draw = sheet(SIZE, SIZE // 2 + 20)

    def at(x: Any) -> tuple[Any, Any]:
        height = np.sin(3 * np.asarray(x)) * 0.45 + 0.55
        return (np.asarray(x) - left) / (right - left) * SIZE, SIZE // 2 + 12 - height * SIZE / 2.4

    places = np.stack(at(np.linspace(left, right, 100)), 1)
    draw.line([tuple(place) for place in places.tolist()], WALL, 2)
    x, y = (float(each) for each in at(goal))
    draw.line((x, y, x, y - 25), INK, 2)
    draw.polygon([(x, y - 25), (x - 14, y - 20), (x, y - 15)], GREEN)
    x, y = (float(each) for each in at(position))
    draw.ellipse((x - 8, y - 14, x + 8, y + 2), BLUE)
    return np.asarray(canvas)


def rods(angles: Sequence[float], lengths: Sequence[float], line: float | None = None) -> np.ndarray:
    """Links from the middle of the sheet, each by its angle from hanging down; `line` is a height above the middle to reach."""
    side = SIZE * 3 // 4
    canvas, draw = sheet(side, side)
    unit, (x, y) = side / 2.3 / sum(lengths), (side / 2, side / 2)
    if line is not None:
        draw.line((0, y - line * unit, side, y - line * unit), GREEN, 2)
    for angle, length, colour in zip(angles, lengths, (BLUE, AMBER), strict=False):
        end = x + length * unit * np.sin(angle), y + length * unit * np.cos(angle)
        draw.line((x, y, *end), colour, 7)
        draw.ellipse((x - 5, y - 5, x + 5, y + 5), INK)
        x, y = end
    return np.asarray(canvas)


def draw_point(environment: Point, task: PointTask, state: np.ndarray) -> np.ndarray:
    """The plane with the goal in green and the point in blue."""
    side = SIZE * 3 // 4
    canvas, draw = sheet(side, side)
    draw.line((side / 2, 0, side / 2, side), GRID)
    draw.line((0, side / 2, side, side / 2), GRID)
    reach = 1.6 * max(environment.span, float(np.abs(task.goal).max()), 1e-6)
    for place, colour, size in ((task.goal, GREEN, 9), (np.clip(state, -reach, reach), BLUE, 6)):
        x, y = side / 2 + float(place[0]) / reach * side / 2, side / 2 - float(place[1]) / reach * side / 2
        draw.ellipse((x - size, y - size, x + size, y + size), colour)
    return np.asarray(canvas)


def draw_hurdles(environment: Hurdles, task: np.ndarray, state: HurdlesState) -> np.ndarray:
    """The piece of the way around the runner, which is blue on the ground and amber in the air; a green line where it ends."""
    width, height, view = SIZE, SIZE // 2, 14.0  # the view in units of the way
    canvas, draw = sheet(width, height)
    (x, y), unit = (float(each) for each in state.place), width / view
    left = min(max(x - view / 3, -1.0), LENGTH + 3.0 - view)
    # The eye follows the ground, not the jumps.
    nodes = np.arange(len(state.ground)) * CELL
    base = float(np.median(np.interp(np.linspace(x - 3, x + 3, 25), nodes, state.ground)))
    at = lambda along, up: ((along - left) * unit, height * 0.7 - (up - base) * unit)  # noqa: E731
    shown = (nodes >= left - CELL) & (nodes <= left + view + CELL)
    outline = [at(*each) for each in zip(nodes[shown].tolist(), state.ground[shown].tolist(), strict=True)]
    if nodes[shown][0] <= 0:
        outline = [at(left - 1, float(state.ground[0])), *outline]
    draw.polygon([*outline, (width, height), (outline[0][0], height)], WALL)
    draw.line((at(LENGTH, -9.0), at(LENGTH, 9.0)), GREEN, 2)
    for mark in range(0, int(LENGTH) + 1, 5):
        draw.text(at(float(mark), base - 3.0), str(mark), PAPER)
    size, (across, down) = 5, at(x, y)
    draw.ellipse((across - size, down - 2 * size, across + size, down), BLUE if state.grounded else AMBER)
    return np.asarray(canvas)


OWN: dict[type, Callable[..., np.ndarray]] = {
    Catch: draw_catch,
    SeveralCatch: draw_several,
    GridWorld: draw_grid,
    KeyDoor: draw_key_door,
    Hurdles: draw_hurdles,
    DelayedChain: draw_chain,
    Point: draw_point,
    Box: draw_point,
    CartPole: lambda _, task, state: cart_and_pole(state[0], state[2], task.half_length, task.position_limit),
    MountainCar: lambda _, task, state: car_on_hill(state[0], task.left_end, task.right_end, task.goal),
    Acrobot: lambda _, task, state: rods((state[0], state[0] + state[1]), (task.length_1, task.length_2), task.height),
    Pendulum: lambda _, task, state: rods((np.pi - state[0],), (1.0,)),
}
# The same, by names of gymnax and from observations.
CONTROL: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "CartPole-v1": lambda shown: cart_and_pole(shown[0], shown[2]),
    "MountainCar-v0": lambda shown: car_on_hill(shown[0]),
    "MountainCarContinuous-v0": lambda shown: car_on_hill(shown[0], goal=0.45),
    "Pendulum-v1": lambda shown: rods((np.pi - np.arctan2(shown[1], shown[0]),), (1.0,)),
    "Acrobot-v1": lambda shown: rods(
        (np.arctan2(shown[1], shown[0]), np.arctan2(shown[1], shown[0]) + np.arctan2(shown[3], shown[2])), (1.0, 1.0), 1.0
    ),
}
