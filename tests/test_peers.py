"""The comparison with other tools: its plan, its processes, its numbers and its page, without any of the tools."""

from __future__ import annotations

import csv
import io
import json
import sys
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
import pytest

from pirate.grid import Grid
from pirate.io.fields import write_field
from pirate.transform import Displacement

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

import peers  # noqa: E402
from _peers import measuring, page, picture, plan, processes, runs, tables, targets  # noqa: E402

OASIS = [f"pair {i}" for i in range(6)]


def row(pair: str, method: str, group: str = "OASIS", **numbers: Any) -> dict[str, Any]:
    usual = dict.fromkeys(tables.COLUMNS, 0.0) | {"registration_s": 1.0, "whole_s": 10.0, "peak_mb": 1000.0}
    return {"pair": pair, "group": group, "method": method} | usual | numbers


def six(method: str, dice: float, seconds: float, whole: float, **numbers: Any) -> list[dict[str, Any]]:
    return [row(pair, method, dice=dice, registration_s=seconds, whole_s=whole, **numbers) for pair in OASIS]


def ideal() -> list[dict[str, Any]]:
    """Rows that meet every target exactly at its limit or a little better."""
    return [
        *six("fast", 0.776, 1.4, 8.9),
        *six("default", 0.80, 3.9, 14.9),
        *six("best", 0.811, 49.0, 60.0),
        *six("syn", 0.74, 50.0, 60.0, optimisation_s=40.0),
        *six("greedy-ncc", 0.79, 80.0, 90.0),
        *six("greedy-ncc-s", 0.795, 80.0, 90.0),
        *six("greedy-wncc", 0.793, 250.0, 260.0),
    ]


# the plan


def test_the_eight_ordered_pairs_stay_within_their_group() -> None:
    pairs = plan.pairs()
    assert pairs[0].name == "oasis_0002 <- oasis_0001"
    assert len({p.name for p in pairs}) == 8
    assert sum(p.group == "OASIS" for p in pairs) == 6
    assert all(p.fixed != p.moving and {p.fixed, p.moving} <= set(plan.GROUPS[p.group]) for p in pairs)
    assert [p.name for p in plan.pairs(["fstrain_05:fstrain_06"])] == ["fstrain_05 <- fstrain_06"]
    with pytest.raises(SystemExit, match="expected FIXED:MOVING"):
        plan.pairs(["oasis_0001:fstrain_05"])


def test_methods_by_name() -> None:
    chosen = plan.methods(["default", "syn", "default"], ["iterations=3"], shorter=True)
    assert [m.name for m in chosen] == ["default", "syn"]
    assert chosen[0].parameters == {"preset": "default", "changes": ["iterations=3"]}
    assert chosen[1].parameters == {"reg_iterations": [4, 2, 0]}
    full = plan.methods(["syn", "syn-cc"])
    assert full[0].parameters == {}
    assert full[1].parameters["reg_iterations"] == [100, 70, 50, 20]
    with pytest.raises(SystemExit, match="--methods bspline"):
        plan.methods(["bspline"])


@pytest.mark.parametrize("repeats", [1, 2, 3, 5])
def test_ours_repeat_between_the_peers_which_run_once(repeats: int) -> None:
    chosen = plan.methods(["fast", "default", "syn", "demons", "greedy-ncc"])
    runs_ = [(m.name, k) for m, k in plan.order(chosen, repeats)]
    assert len(runs_) == len(set(runs_)) == 2 * repeats + 3
    assert [k for name, k in runs_ if name == "fast"] == list(range(repeats))
    if repeats == 3:
        assert [n for n, _ in runs_] == [
            x for peer in ("syn", "demons", "greedy-ncc") for x in ("fast", "default", peer)
        ]
    assert [(m.name, k) for m, k in plan.order(plan.methods(["syn"]), repeats)] == [("syn", 0)]


def test_long_methods_leave_out_later_pairs() -> None:
    cc, demons, syn = plan.methods(["syn-cc", "demons", "syn"])
    assert [plan.skipped(cc, i, 2, None) for i in range(4)] == [False, False, True, True]
    assert not plan.skipped(demons, 5, 2, 100.0)
    assert plan.skipped(demons, 5, 2, 121.0)
    assert not plan.skipped(demons, 1, 2, 121.0)
    assert not plan.skipped(syn, 7, 2, 5000.0)


def test_time_left_is_the_mean_of_what_runs_took() -> None:
    taken = {"syn": [40.0, 60.0], "fast": [5.0]}
    assert plan.time_left(taken, ["syn", "syn", "fast"]) == (105.0, True)
    assert plan.time_left(taken, ["syn", "best"]) == (50.0, False)
    assert plan.time_left(taken, []) == (0, True)


# processes


def test_a_process_is_timed_and_its_memory_measured(tmp_path: Path) -> None:
    code = (
        "import os, time; b = bytearray(300_000_000); time.sleep(0.2); print(os.environ['OMP_NUM_THREADS'])"
    )
    done = processes.run([sys.executable, "-c", code], tmp_path / "log", 2, 60)
    assert (tmp_path / "log").read_text() == "2\n"
    assert done.seconds >= 0.2
    assert done.peak_mb > 300


def test_a_failed_process_says_why(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with pytest.raises(processes.RunError, match=r"exit code 1: ValueError: no such field"):
        processes.run([sys.executable, "-c", "raise ValueError('no such field')"], log, 1, 60)
    with pytest.raises(processes.RunError, match="killed by signal 9: no output"):
        processes.run([sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"], log, 1, 60)
    with pytest.raises(processes.RunError, match="took longer than 0 s"):
        processes.run([sys.executable, "-c", "import time; time.sleep(60)"], log, 1, 0.3)
    assert processes.run([sys.executable, "-c", "raise SystemExit(1)"], log, 1, 60, good=(0, 1)).seconds > 0


def test_a_kept_result_counts_only_under_the_same_key(tmp_path: Path) -> None:
    path, key = tmp_path / "run.json", {"inputs": {"fixed": "abc"}, "parameters": {"n": (1, 2)}}
    assert processes.kept(path, key) is None
    processes.keep(path, key, {"seconds": 3.0})
    assert processes.kept(path, key) == {"seconds": 3.0}
    assert processes.kept(path, key | {"inputs": {"fixed": "abd"}}) is None
    path.write_text("{")
    assert processes.kept(path, key) is None


def test_the_digest_of_a_program_sees_names_and_contents(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1")
    first = processes.tree_digest(tmp_path)
    (tmp_path / "notes.txt").write_text("not a program")
    assert processes.tree_digest(tmp_path) == first
    (tmp_path / "a.py").write_text("x = 2")
    second = processes.tree_digest(tmp_path)
    (tmp_path / "a.py").rename(tmp_path / "b.py")
    assert len({first, second, processes.tree_digest(tmp_path)}) == 3


# one run


def test_stages_that_are_not_known_to_lie_outside_count_as_registration() -> None:
    stages = {
        "read": 1.0,
        "prepare": 0.25,
        "solve": 2.0,
        "repair": 0.5,
        "new": 0.125,
        "invert": 9,
        "measure": 9,
    }
    assert runs.registration_seconds(stages) == 2.875


def test_the_optimisation_time_of_ants_is_read_from_its_log() -> None:
    log = "  1DIAGNOSTIC, 1\n  Elapsed time (stage 0): 1.5e+01\n\nTotal elapsed time: 17.5\n"
    assert runs.ants_stage_seconds(log) == 15.0
    assert runs.ants_stage_seconds("no times") is None


def test_repeats_give_medians_and_must_agree() -> None:
    def once(seconds: float, sha: str = "a") -> dict[str, Any]:
        times = {"registration_s": seconds, "whole_s": 10 * seconds, "cpu_s": seconds}
        return times | {"peak_mb": 100 * seconds, "warp_sha256": sha, "reused": seconds == 9}

    found = runs.combined([once(2), once(9), once(3)])
    assert (found["registration_s"], found["whole_s"], found["peak_mb"]) == (3, 30, 900)
    assert (found["repeats"], found["reused"]) == (3, True)
    with pytest.raises(processes.RunError, match="different fields"):
        runs.combined([once(2), once(2, "b")])


def test_versions_of_what_is_not_there() -> None:
    found = runs.versions(["numpy", "no-such-package"])
    assert found["numpy"] == np.__version__
    assert found["no-such-package"] == "not installed"


def test_a_failed_method_is_a_row_that_says_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pair = plan.pairs()[0]

    class Broken(runs.Bench):
        def once(self, pair: plan.Pair, method: plan.Method, repeat: int) -> dict[str, Any]:
            raise processes.RunError("exit code 2: no such preset")

        def measured(self, pair: plan.Pair, name: str, found: Any) -> dict[str, float]:
            return {"dice": 0.5}

    order = plan.order(plan.methods(["default"]), 2)
    progress = peers.Progress(["default", "default", "measured", "measured"])
    rows = peers.one_pair(Broken(tmp_path, tmp_path, 2, 60), pair, order, progress)
    assert [r["method"] for r in rows] == ["start", "default"]
    assert rows[0]["dice"] == 0.5
    assert rows[1]["error"] == "exit code 2: no such preset"
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("[1/4] oasis_0002 <- oasis_0001 default: FAILED, exit code 2: no such preset")
    assert "not repeated" in lines[1]


def test_a_program_that_changes_meanwhile_gives_no_result(tmp_path: Path) -> None:
    class Edited(runs.Bench):
        program = "checksum at the start"

        def key(self, pair: plan.Pair, method: plan.Method) -> dict[str, Any]:
            return {}

        def _pirate(self, pair: plan.Pair, method: plan.Method, folder: Path) -> dict[str, Any]:
            return {"transform": "warp"}

    with pytest.raises(processes.RunError, match="own files changed while the comparison ran"):
        Edited(tmp_path, tmp_path, 2, 60).once(plan.pairs()[0], plan.methods(["default"])[0], 0)
    assert not list(tmp_path.rglob("run.json"))


# measuring


def save(path: Path, data: np.ndarray, affine: np.ndarray) -> str:
    nib.save(nib.Nifti1Image(data, affine), path)
    return str(path)


def test_a_known_shift_is_measured_exactly(tmp_path: Path) -> None:
    shape, affine = (16, 14, 12), np.diag([-1.0, 2.0, 1.5, 1.0])
    labels = np.zeros(shape, np.uint8)
    labels[5:9, 4:8, 4:8] = 1
    image = np.random.default_rng(0).uniform(1, 2, shape).astype(np.float32) * labels
    moved, moved_labels = np.roll(image, 2, 0), np.roll(labels, 2, 0)
    field = np.zeros((3, *shape), np.float32)
    field[0] = 2
    write_field(tmp_path / "warp.nii.gz", Displacement(Grid(shape, affine), field))
    job = {
        "fixed": save(tmp_path / "fixed.nii.gz", image, affine),
        "moving": save(tmp_path / "moving.nii.gz", moved, affine),
        "fixed_labels": save(tmp_path / "fixed_labels.nii.gz", labels, affine),
        "moving_labels": save(tmp_path / "moving_labels.nii.gz", moved_labels, affine),
    }
    start = measuring.numbers(job)
    assert start["dice"] == 0.5  # half of the block overlaps
    assert start["hd95_mm"] == 2.0
    job |= {"transform": str(tmp_path / "warp.nii.gz"), "warped": job["fixed"]}
    after = measuring.numbers(job)
    assert after["agreement"] == pytest.approx(1)
    assert (after["dice"], after["dice_vote"], after["hd95_mm"], after["labels"]) == (1, 1, 0, 1)
    assert after["folds_percent"] == after["ndv_percent"] == after["nondiffeomorphic_cells"] == 0
    with pytest.raises(SystemExit, match="does not give the tool's own warped image: correlation"):
        measuring.numbers(job | {"warped": job["moving"]})
    with pytest.raises(SystemExit, match="the tool's warped image is"):
        measuring.agreement(image, image[1:])


# tables


def test_a_share_that_is_not_zero_never_reads_as_zero() -> None:
    assert tables.shown(0.0, "fold") == "0"
    assert tables.shown(1.4e-7, "fold") == "1e-07"
    assert tables.shown(0.1234567, "fold") == "0.1235"
    assert tables.shown(None, ".4f") == "-"
    assert (tables.shown(3.456, "time"), tables.shown(34.56, "time")) == ("3.46", "34.6")
    assert (tables.shown(3.0, "count"), tables.shown(3.5, "count")) == ("3", "3.5")


def test_means_say_how_many_pairs_and_leave_failures_out() -> None:
    rows = [
        row("p", "default", dice=0.8), row("q", "default", dice=0.6), row("p", "syn-cc", dice=0.75),
        {"pair": "q", "group": "OASIS", "method": "syn-cc", "error": "killed | by\nsignal 9"},
        row("r", "default", "fstrain", dice=0.1),
    ]  # fmt: skip
    assert tables.means(rows, "default", "OASIS")["dice"] == pytest.approx(0.7)
    table = tables.mean_table(rows, "OASIS")
    assert table[2].startswith("| default | 2 | 0.7000 |")
    assert table[3].startswith("| syn-cc | 1 of 2 | 0.7500 |")
    assert len({line.count("|") for line in table}) == 1
    note = tables.partial(rows, "OASIS", "default")
    assert len(note) == 1
    assert "on these pairs Dice 0.7500, `default` 0.8000" in note[0]
    assert "Failed on q: killed / by signal 9." in note[0]
    broken = tables.pair_table(rows, "q")
    assert "| syn-cc | failed: killed / by signal 9 |" in broken[3]
    assert len({line.count("|") for line in broken}) == 1


def test_the_csv_holds_every_row_unrounded() -> None:
    rows = [
        row("p", "default", dice=1 / 3, flags=["not a column"]),
        {"pair": "p", "group": "g", "method": "syn", "error": "a, b"},
    ]
    found = list(csv.DictReader(io.StringIO(tables.as_csv(rows))))
    assert float(found[0]["dice"]) == 1 / 3
    assert found[1]["error"] == "a, b"
    assert found[1]["dice"] == ""


# targets


def test_every_target_is_met_by_rows_made_for_it() -> None:
    found = targets.verdicts(ideal())
    assert len(found) == 17
    assert {v.target: v.met for v in found if v.met is not True} == {}
    by = {v.target: v.measured for v in found}
    assert by["`default`: mean Dice at least `syn`'s + 0.04"] == "+0.0600"
    assert by["`default`: registration time at most 0.08x `syn`'s"].startswith("0.078x (")
    assert "0.098x" in by["`default`: registration time at most 0.08x `syn`'s"]


@pytest.mark.parametrize(
    ("method", "change", "missed"),
    [
        ("default", {"dice": 0.797}, "at least `greedy-wncc`'s + 0.005"),
        ("syn", {"dice": 0.761}, "`default`: mean Dice at least `syn`'s + 0.04"),
        ("default", {"ndv_percent": 1e-9}, "`default`: folds"),
        ("fast", {"folds_forward_percent": 1e-9}, "`fast`: folds"),
        ("default", {"registration_s": 4.1}, "`default`: registration time at most 0.08x `syn`'s"),
        ("greedy-ncc", {"registration_s": 70.0}, "at most 0.05x `greedy-ncc`'s"),
        ("default", {"whole_s": 15.1}, "`default`: whole process at most 0.25x"),
        ("default", {"peak_mb": 1501.0}, "`default`: peak memory"),
        ("fast", {"dice": 0.774}, "`fast`: mean Dice at least"),
        ("fast", {"registration_s": 1.6}, "`fast`: registration time"),
        ("fast", {"whole_s": 9.1}, "`fast`: whole process"),
        ("best", {"dice": 0.80}, "`best`: mean Dice above `default`'s"),
        ("best", {"registration_s": 51.0}, "`best`: registration time"),
    ],
)
def test_a_missed_target_is_called_missed(method: str, change: dict[str, float], missed: str) -> None:
    rows = [r | change if r["method"] == method else r for r in ideal()]
    assert any(missed in v.target and v.met is False for v in targets.verdicts(rows))


def test_one_pair_below_greedy_is_enough_to_miss() -> None:
    rows = ideal()
    next(r for r in rows if r["method"] == "default")["dice"] = 0.7899
    found = next(v for v in targets.verdicts(rows) if "on no pair below `greedy-ncc`" in v.target)
    assert (found.met, found.measured) == (False, "smallest difference -0.0001, below on 1")


def test_a_target_without_rows_is_not_measured_and_missing_pairs_are_told() -> None:
    rows = [r for r in ideal() if r["method"] != "best"]
    found = {v.target: v for v in targets.verdicts(rows)}
    assert found["`best`: mean Dice above `default`'s"].met is None
    rows = [r for r in ideal() if r["method"] != "greedy-wncc" or r["pair"] in OASIS[:2]]
    by = {v.target: v.measured for v in targets.verdicts(rows)}
    assert by["`default`: mean Dice at least `greedy-wncc`'s + 0.005"] == "+0.0070 (2 of 6 pairs)"


def test_the_head_names_the_peers_that_are_ahead_on_the_same_pairs() -> None:
    rows = [
        row("p", "default", dice=0.8), row("q", "default", dice=0.6), row("q", "syn", dice=0.65, registration_s=5.0),
        row("q", "demons", dice=0.5, registration_s=5.0, whole_s=20.0),
    ]  # fmt: skip
    text = targets.where_peers_win(rows, ["default"], ["syn", "demons"])
    assert text == "Ahead of `default`: `syn` on OASIS (Dice 0.6500 against 0.6000)."
    text = targets.where_peers_win(rows, ["default"], ["demons"])
    assert text.startswith("No peer is ahead of `default`")
    assert targets.where_peers_win(rows, ["best"], ["demons"]) == "`best` could not be compared."


# picture and page


def test_labels_overlap_neither_each_other_nor_a_point() -> None:
    anchors = [(100.0, 100.0), (112.0, 103.0), (125.0, 98.0), (300.0, 100.0), (395.0, 190.0)]
    frame = (0.0, 0.0, 400.0, 200.0)
    boxes = picture.place(anchors, [(80.0, 14.0)] * 5, frame, 6.0)
    dots = [(x - 6, y - 6, x + 6, y + 6) for x, y in anchors]
    for i, box in enumerate(boxes):
        assert all(low >= edge for low, edge in zip(box[:2], frame[:2], strict=True))
        assert all(high <= edge for high, edge in zip(box[2:], frame[2:], strict=True))
        assert not any(picture.overlap(box, other) for other in boxes[:i] + boxes[i + 1 :] + dots)


def test_the_page_comes_with_its_picture_and_table(tmp_path: Path) -> None:
    rows = [
        *[row(pair, "start", dice=0.5, registration_s=None, whole_s=None, peak_mb=None) for pair in OASIS],
        *ideal(),
        row(OASIS[0], "syn-cc", dice=0.77, registration_s=900.0, repeats=1),
        row("f", "start", "fstrain", dice=0.4),
        row("f", "default", "fstrain", dice=0.6, repeats=3, when="2026-01-02 03:04", reused=True),
    ]
    names = ["fast", "default", "best", "syn", "syn-cc", "greedy-ncc", "greedy-ncc-s", "greedy-wncc"]
    about = {
        "command": "python benchmarks/peers.py DATA", "processor": "a processor", "processors": 2, "load": 0.1,
        "threads": 2, "trial": False, "doctor": "all well", "versions": {"python": "3.11"},
    }  # fmt: skip
    page.write(tmp_path / "peers.md", rows, plan.methods(names), about)
    text = (tmp_path / "peers.md").read_text()
    head = text.split("\n\n")[1]
    assert head.startswith(
        "Made by `python benchmarks/peers.py DATA` on a processor (2 processors, 2 threads"
    )
    assert "1 of 1 results were taken from an earlier run" in head
    assert "Ahead of `default`: " in head
    assert "| syn-cc | 1 of 6 |" in text
    assert "| `default`: mean Dice at least `syn`'s + 0.04 | +0.0600 | yes |" in text
    assert "Ours ran 3 times" in text
    assert "(peers-dice-time.png)" in text
    assert (tmp_path / "peers-dice-time.png").read_bytes().startswith(b"\x89PNG")
    assert len((tmp_path / "peers.csv").read_text().splitlines()) == len(rows) + 1
    points = page.points_of(rows, plan.methods(names), "OASIS")
    assert next(p.label for p in points if p.name == "syn-cc") == "syn-cc (1 of 6 pairs)"


def test_the_page_of_failures_only_has_no_picture(tmp_path: Path) -> None:
    rows = [{"pair": "p", "group": "OASIS", "method": "default", "error": "exit code 3: bad"}]
    about = {
        "command": "c", "processor": "a", "processors": 2, "load": 0.1, "threads": 2, "trial": True,
        "doctor": "", "versions": {},
    }  # fmt: skip
    page.write(tmp_path / "peers.md", rows, plan.methods(["default"]), about)
    assert "failed: exit code 3: bad" in (tmp_path / "peers.md").read_text()
    assert "not a result" in (tmp_path / "peers.md").read_text()
    assert not (tmp_path / "peers-dice-time.png").exists()


# the command


def test_the_recorded_command_repeats_the_run_without_paths() -> None:
    words = ["/some/where", "--out", "/else/peers.md", "--work", "/tmp/x"]
    assert peers.command(peers.parsed(words)) == "python benchmarks/peers.py DATA --out docs/results/peers.md"
    words += ["--methods", "fast", "syn", "--threads", "1", "--set", "iterations=3", "--trial"]
    assert peers.command(peers.parsed(words)).endswith(
        "--methods fast syn --threads 1 --set iterations=3 --trial"
    )
    with pytest.raises(SystemExit):
        peers.parsed([*words, "--threads", "0"])


def test_missing_data_are_named(tmp_path: Path) -> None:
    options = peers.parsed([str(tmp_path), "--out", "x.md", "--methods", "fast"])
    with pytest.raises(SystemExit, match=r"norm.nii.gz: there is no such file"):
        peers.all_pairs(runs.Bench(tmp_path, tmp_path, 2, 60), options, plan.methods(["fast"]))


def test_a_change_of_the_program_or_the_inputs_changes_the_key(tmp_path: Path) -> None:
    for name in ("oasis_0001", "oasis_0002"):
        folder = tmp_path / "brain3d" / name
        folder.mkdir(parents=True)
        for file in ("norm.nii.gz", "seg35.nii.gz"):
            (folder / file).write_text(f"{name} {file}")
    pair = plan.pairs()[0]
    ours, syn = plan.methods(["default", "syn"])
    key = runs.Bench(tmp_path, tmp_path, 2, 60).key(pair, ours)
    assert json.loads(json.dumps(key)) == key
    assert runs.Bench(tmp_path, tmp_path, 2, 60).key(pair, ours) == key
    assert runs.Bench(tmp_path, tmp_path, 1, 60).key(pair, ours) != key
    assert runs.Bench(tmp_path, tmp_path, 2, 60).key(pair, syn)["program"] != key["program"]
    (tmp_path / "brain3d" / "oasis_0001" / "seg35.nii.gz").write_text("other labels")
    assert runs.Bench(tmp_path, tmp_path, 2, 60).key(pair, ours) != key
