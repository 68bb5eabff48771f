"""Points in CSV: the same places in every space, other columns kept, mistakes named by line."""

from __future__ import annotations

import numpy as np
import pytest

from pirate.errors import InputError, UsageError
from pirate.grid import Grid
from pirate.io import points as points_module
from pirate.io.points import PointTable, read_points, write_points

GRID = Grid((5, 6, 7), np.array([[-2.0, 0, 0, 9], [0, 0, 1.5, -4], [0, 3, 0, 1], [0, 0, 0, 1]]))
PLANE = Grid((5, 6), np.array([[0.0, 0, 1, 9], [2, 0, 0, -4], [0, 3, 0, 1], [0, 0, 0, 1]]))


def write(path, text):
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def test_the_three_spaces_name_the_same_points(tmp_path):
    ras = read_points(write(tmp_path / "r.csv", "x,y,z\n5,-1,7\n"))
    lps = read_points(write(tmp_path / "l.csv", "x,y,z\n-5,1,7\n"), "lps")
    voxel = read_points(write(tmp_path / "v.csv", "x,y,z\n2,2,2\n"), "voxel", GRID)
    np.testing.assert_array_equal(ras.world, [[5, -1, 7]])
    np.testing.assert_array_equal(lps.world, ras.world)
    np.testing.assert_array_equal(voxel.world, ras.world)


@pytest.mark.parametrize("space", ["ras", "lps", "voxel"])
def test_points_survive_the_file(tmp_path, space):
    world = np.random.default_rng(0).normal(scale=100, size=(20, 3))
    write_points(tmp_path / "p.csv", PointTable(world), space, GRID)
    np.testing.assert_allclose(read_points(tmp_path / "p.csv", space, GRID).world, world, atol=1e-6)


def test_on_a_plane_z_may_be_absent(tmp_path):
    table = read_points(write(tmp_path / "p.csv", "x,y\n1,2\n"), "voxel", PLANE)
    np.testing.assert_array_equal(table.world, [[9, -2, 7]])
    write_points(tmp_path / "q.csv", table, "voxel", PLANE)
    assert (tmp_path / "q.csv").read_text() == "x,y\n1,2\n"


def test_other_columns_and_their_order_are_kept(tmp_path):
    table = read_points(
        write(tmp_path / "p.csv", '\ufeffname,Z,y,X,weight\r\n"a, b",3,2,1,0.10\r\n\r\nc,6,5,4,-1e-3\r\n')
    )
    np.testing.assert_array_equal(table.world, [[1, 2, 3], [4, 5, 6]])
    write_points(tmp_path / "q.csv", table.at(table.world + 0.5))
    assert (
        tmp_path / "q.csv"
    ).read_text() == 'name,Z,y,X,weight\n"a, b",3.5,2.5,1.5,0.10\nc,6.5,5.5,4.5,-1e-3\n'


@pytest.mark.parametrize("cell", ["=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(1)"])
def test_formulas_are_defused(tmp_path, cell):
    table = PointTable(np.zeros((1, 3)), ("x", "y", "z", cell), (("0", "0", "0", cell),))
    write_points(tmp_path / "p.csv", table)
    again = read_points(tmp_path / "p.csv")
    assert (again.header[3], again.rows[0][3]) == (f"'{cell}", f"'{cell}")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "it is empty"),
        ("a,b\n1,2\n", "line 1: the columns are a, b; expected each of x, y, z once"),
        ("x,y,z,x\n1,2,3,4\n", "line 1: the columns"),
        ("x,y\n1,2\n", "line 1: the columns"),
        ("x,y,z\n1,2,3\n1,2\n", "line 3: there are 2 cells; expected 3"),
        ("x,y,z\n1,2,3\n\n4,five,6\n", "line 4: y is 'five'; expected a finite number"),
        ("x,y,z\n1,2,nan\n", "line 2: z is 'nan'"),
        ("x,y,z\n1,2,\n", "line 2: z is ''"),
        (b"x,y,z\n1,2,3\n\xff\xfe\n", "line 3: it is not UTF-8"),
        ('x,y,z\n1,2,"3"4\n', "line 2: it is not CSV"),
    ],
)
def test_a_mistake_is_named_by_its_line(tmp_path, text, message):
    with pytest.raises(InputError, match=message):
        read_points(write(tmp_path / "p.csv", text))


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(InputError, match="there is no such file"):
        read_points(tmp_path / "p.csv")


def test_a_file_without_end_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(points_module, "_LARGEST_FILE", 10)
    with pytest.raises(InputError, match="larger than"):
        read_points(write(tmp_path / "p.csv", "x,y,z\n1,2,3\n"))


def test_voxels_need_their_image(tmp_path):
    with pytest.raises(UsageError, match="whose voxels"):
        read_points(write(tmp_path / "p.csv", "x,y,z\n1,2,3\n"), "voxel")
