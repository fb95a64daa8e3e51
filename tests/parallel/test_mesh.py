"""Several devices and several processes compute what one device does; and meshes that do not fit are refused."""

from types import SimpleNamespace

import jax
import numpy as np
import pytest

from rulax.discovery.estimators import in_groups
from rulax.errors import UserError
from rulax.parallel import mesh, processes
from rulax.parallel.mesh import ONE_DEVICE, make_layout, usual
from tests.parallel.running import run, several

PROGRAM = ["-m", "tests.parallel.program"]
ONE = "agents=1"


def parts(found, mesh: str):
    """Arrays by name, of one mesh."""
    return {name.partition("/")[2]: found[name] for name in found.files if name.partition("/")[0] == mesh}


def on_devices(folder, which: str):
    """What one process with four virtual devices found: on one of them, and on a mesh of all."""
    file = folder / "devices.npz"
    run(*PROGRAM, str(file), which, f"{ONE}/agents=2,streams=2", devices=4)
    return np.load(file)


def by_processes(folder, which: str, number: int):
    """What several processes found."""
    file, shape = folder / "processes.npz", f"agents={number}"
    with several(number, [*PROGRAM, str(file), which, shape], meet=False) as started:
        outputs = [process.communicate(timeout=500)[1] for process in started]
    assert [process.returncode for process in started] == [0] * number, outputs
    return parts(np.load(file), shape)


def assert_equal(found, wanted):
    assert found.keys() == wanted.keys()
    for name, values in wanted.items():
        # Adam divides by the size of a gradient, so the last bits of a small one show in the parameters.
        tolerance = 1e-3 * (1e-3 + np.abs(values[np.isfinite(values)]).max())
        np.testing.assert_allclose(found[name], values, atol=tolerance, rtol=0, err_msg=name)


@pytest.fixture(scope="module")
def training(tmp_path_factory):
    return on_devices(tmp_path_factory.mktemp("training"), "training")


def test_four_virtual_devices_train_as_one_does(training):
    assert_equal(parts(training, "agents=2,streams=2"), parts(training, ONE))


def test_two_processes_train_as_one_does(training, tmp_path):
    assert_equal(by_processes(tmp_path, "training", 2), parts(training, ONE))


def test_four_virtual_devices_discover_as_one_does(tmp_path):
    found = on_devices(tmp_path, "compiled")
    assert_equal(parts(found, "agents=2,streams=2"), parts(found, ONE))


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_processes_and_devices_discover_in_a_mixed_population_as_one_does(tmp_path):
    """A compiled and a host family, agents differentiated one by one on each device."""
    found = on_devices(tmp_path, "mixed")
    assert_equal(parts(found, "agents=2,streams=2"), parts(found, ONE))
    for number in (2, 4):
        assert_equal(by_processes(tmp_path, "mixed", number), parts(found, ONE))


def test_groups_of_each_share_are_the_same_as_all_at_once():
    inputs = np.arange(24.0).reshape(12, 2)
    found = in_groups(lambda row: (row.sum(), row * row), inputs, 2, shares=3)
    np.testing.assert_array_equal(found[0], inputs.sum(1))
    np.testing.assert_array_equal(found[1], inputs**2)


# -- which mesh ------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def eight(monkeypatch):
    """Eight devices of two processes."""
    devices = [SimpleNamespace(process_index=index // 4) for index in range(8)]
    monkeypatch.setattr(jax, "devices", lambda: devices)
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    monkeypatch.setattr(mesh, "Layout", lambda made: made)
    monkeypatch.setattr(jax, "make_mesh", lambda sizes, names, axis_types, devices: (dict(zip(names, sizes, strict=True)), devices))
    return devices


@pytest.mark.parametrize(
    ("wanted", "sizes", "sentence"),
    [
        ({"agent": 2}, {}, "mesh has no axis 'agent'; did you mean 'agents'?"),
        ({"agents": 0}, {}, "mesh agents=0 is not a number of devices"),
        ({"agents": "x"}, {}, "mesh agents=x is not a number of devices"),
        ({"agents": 8, "streams": 2}, {}, "needs 16 devices, and there are 8"),
        ({"agents": 4}, {"agents": 6}, "does not divide the 6 agents evenly"),
        ({"agents": 3}, {"agents": 6}, "cannot be shared evenly by 2 processes"),
        ({}, {"agents": 3}, "3 agents cannot be shared evenly by 2 processes"),
        ({"streams": 2}, {}, "environments that step on the CPU belong to one"),
    ],
)
def test_a_mesh_that_does_not_fit_is_refused_in_a_sentence(eight, wanted, sizes, sentence):
    with pytest.raises(UserError, match=sentence.replace("?", r"\?")):
        make_layout(wanted, {"agents": 8, "streams": 4} | sizes, whole_members=True)


def test_as_many_devices_of_every_process_are_chosen(eight):
    shape, chosen = make_layout({"agents": 2, "streams": 2}, {"agents": 8, "streams": 4})
    assert shape == {"agents": 2, "streams": 2}
    assert chosen == [*eight[:2], *eight[4:6]]


@pytest.mark.parametrize(
    ("members", "devices", "number", "found"), [(8, 4, 1, 4), (6, 4, 1, 3), (7, 4, 1, 1), (6, 8, 2, 6), (3, 4, 2, 1)]
)
def test_the_usual_mesh_has_as_many_devices_as_divide_the_members(members, devices, number, found):
    assert usual(members, devices, number) == found


def test_one_device_has_no_mesh():
    assert make_layout({}, {"agents": 1, "streams": 4}) is ONE_DEVICE
    tree = {"x": np.ones(2)}
    assert ONE_DEVICE.place(tree, None) is ONE_DEVICE.mine(tree, 2) is ONE_DEVICE.ours(tree, 2) is ONE_DEVICE.local(tree) is tree


# -- which processes -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (("", 1, 2), "give --coordinator HOST:PORT"),
        (("host", 0, 2), "expects HOST:PORT"),
        (("127.0.0.1:1234", 2, 2), "must be less than num_processes"),
    ],
)
def test_processes_that_cannot_meet_are_refused(given, sentence):
    with pytest.raises(UserError, match=sentence):
        processes.check_address(*given)


def test_a_process_that_is_alone_agrees_with_itself():
    assert processes.first()
    assert processes.number() == 1
    assert processes.any_of(True, False) == (True, False)
    assert processes.from_first(2**62) == 2**62
