import dataclasses
import json
import math
import os
import pickle
import struct
import zipfile

import pytest
import safetensors.torch
import torch

from pirate.denoisers import DnCNN, load_denoiser
from pirate.errors import InputError, OutputError
from pirate.io import weights
from pirate.io.weights import Card, load_weights, save_weights

NETWORK = DnCNN(2, depth=2, width=3)
CARD = Card(
    task="field denoising",
    architecture=NETWORK.architecture(),
    ndim=2,
    sigma_min=0.1,
    sigma_max=1.0,
    resolution=2,
    training_data="generated fields, seed 0",
    labels_used=False,
    date="2025-01-31",
    metrics={"psnr_db": 31.5, "steps": 1000},
    pirate_version="0.1.0",
)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "prior.safetensors"
    save_weights(path, NETWORK.state_dict(), CARD)
    return path


def split(path):
    """Return the header as a dictionary and the tensor bytes."""
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    return json.loads(content[8 : 8 + length]), content[8 + length :]


def join(path, header, body):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)


def refused(path, finding, **more):
    """Loading gives one InputError of the one form, naming the file and the finding."""
    with pytest.raises(InputError, match=finding) as caught:
        load_denoiser(path, 2, **more)
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert "; expected " in message
    assert "\n" not in message


def test_what_is_saved_is_loaded(file):
    tensors, card = load_weights(file)
    assert card == CARD
    for name, tensor in NETWORK.state_dict().items():
        assert torch.equal(tensors[name], tensor)


def test_the_header_is_plain_safetensors_metadata(file):
    with safetensors.safe_open(file, "pt") as opened:
        metadata = opened.metadata()
    assert json.loads(metadata["unit"]) == "voxel"
    assert json.loads(metadata["architecture"])["kind"] == "dncnn"
    assert json.loads(metadata["labels_used"]) is False


def test_saving_twice_gives_the_same_bytes(file, tmp_path):
    save_weights(tmp_path / "again.safetensors", NETWORK.state_dict(), CARD)
    assert (tmp_path / "again.safetensors").read_bytes() == file.read_bytes()


def test_half_precision_is_read_as_float32(tmp_path):
    path = tmp_path / "half.safetensors"
    save_weights(path, {n: t.half() for n, t in NETWORK.state_dict().items()}, CARD)
    tensors, _ = load_weights(path)
    assert {t.dtype for t in tensors.values()} == {torch.float32}
    torch.testing.assert_close(
        tensors["layers.0.weight"], NETWORK.state_dict()["layers.0.weight"].half().float()
    )


def test_a_failed_save_leaves_the_old_file(file):
    before = file.read_bytes()
    with pytest.raises(InputError, match="not finite"):
        save_weights(file, {"a": torch.tensor([math.inf])}, CARD)
    assert file.read_bytes() == before
    assert list(file.parent.iterdir()) == [file]


def test_a_folder_that_does_not_exist_is_an_output_error(tmp_path):
    with pytest.raises(OutputError, match="folder"):
        save_weights(tmp_path / "no" / "prior.safetensors", NETWORK.state_dict(), CARD)


def test_metrics_that_are_not_finite_cannot_be_written(tmp_path):
    with pytest.raises(ValueError, match="JSON"):
        save_weights(tmp_path / "a.safetensors", {}, dataclasses.replace(CARD, metrics={"loss": math.nan}))


# The eleven kinds of bad weights, and their relatives.


class Payload:
    def __init__(self, canary):
        self.canary = canary

    def __reduce__(self):
        return os.mkdir, (self.canary,)


def test_a_renamed_pickle(tmp_path):
    path, canary = tmp_path / "a.safetensors", tmp_path / "canary"
    path.write_bytes(pickle.dumps(Payload(str(canary))))
    refused(path, "not a safetensors file")
    torch.save({"layers.0.weight": Payload(str(canary))}, path)
    refused(path, "not a safetensors file")
    assert not canary.exists()


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.999])
def test_a_truncated_file(file, share):
    content = file.read_bytes()
    file.write_bytes(content[: int(share * len(content))])
    refused(file, "the header claims|cannot be read")


def test_wrong_names(file):
    tensors = {n.replace("layers", "net"): t for n, t in NETWORK.state_dict().items()}
    save_weights(file, tensors, CARD)
    refused(file, "tensor layers.0.bias is missing")


def test_wrong_shapes(file):
    save_weights(file, DnCNN(2, depth=2, width=4).state_dict(), CARD)
    refused(file, r"tensor layers.0.bias has shape \(4,\), not \(3,\)")


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_weights_that_are_not_finite(file, value):
    header, body = split(file)
    join(file, header, struct.pack("<f", value) + body[4:])
    refused(file, "tensor layers.0.bias holds values that are not finite")


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.int32, torch.complex64, torch.bool])
def test_another_type(file, dtype):
    tensors = {n: t.to(dtype).contiguous() for n, t in NETWORK.state_dict().items()}
    file.write_bytes(safetensors.torch.save(tensors, CARD.header()))
    refused(file, f"is {str(dtype).removeprefix('torch.')}; expected float32 or float16")


def test_a_header_of_101_megabytes(file):
    with file.open("wb") as opened:
        opened.write(struct.pack("<Q", 101 << 20) + b'{"')
        opened.truncate(102 << 20)
    refused(file, r"claims 105,906,176 bytes; expected at most 1,048,576")


@pytest.mark.parametrize("length", [2**63, 2**64 - 1])
def test_a_header_length_that_would_be_negative(file, length):
    file.write_bytes(struct.pack("<Q", length) + file.read_bytes()[8:])
    refused(file, "header claims")


def test_a_header_longer_than_the_file(file):
    file.write_bytes(struct.pack("<Q", 1 << 20) + file.read_bytes()[8:])
    refused(file, "the header claims 1,048,576 bytes; expected at most the")


@pytest.mark.parametrize("shift", [-4, 4])
def test_overlapping_or_distant_offsets(file, shift):
    header, body = split(file)
    start, end = header["layers.2.weight"]["data_offsets"]
    header["layers.2.weight"]["data_offsets"] = [start + shift, end + shift]
    join(file, header, body)
    refused(file, "the tensors cannot be read")


def test_two_tensors_on_the_same_bytes(file):
    header, body = split(file)
    header["again"] = header["layers.0.bias"]
    join(file, header, body)
    refused(file, "the tensors cannot be read")


def test_a_shape_that_does_not_fit_its_bytes(file):
    header, body = split(file)
    header["layers.0.bias"]["shape"] = [2**40, 2**40]
    join(file, header, body)
    refused(file, "the tensors cannot be read")


def test_an_unknown_type(file):
    header, body = split(file)
    header["layers.0.bias"]["dtype"] = "PY_OBJECT"
    join(file, header, body)
    refused(file, "the tensors cannot be read")


def test_extra_tensors(file):
    save_weights(file, NETWORK.state_dict() | {"zz\n\x1b[31mforged": torch.zeros(2)}, CARD)
    refused(file, r"tensor zz\\n\\x1b\[31mforged does not belong to the network")


def test_a_missing_tensor(file):
    save_weights(file, {n: t for n, t in NETWORK.state_dict().items() if n != "layers.2.bias"}, CARD)
    refused(file, "tensor layers.2.bias is missing")


def test_another_sha256(file):
    import hashlib

    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    load_denoiser(file, 2, sha256=digest)
    load_denoiser(file, 2, sha256=digest.upper())
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    refused(file, f"another sha256; expected {digest}", sha256=digest)


@pytest.mark.parametrize("content", [b"", b"\0", b"\0" * 8])
def test_an_empty_file(file, content):
    file.write_bytes(content)
    refused(file, f"the file has {len(content)} bytes")


def test_bytes_after_the_end(file):
    with file.open("ab") as opened, zipfile.ZipFile(opened, "w") as archive:
        archive.writestr("data.pkl", b"cos\nsystem\n")
    refused(file, "the tensors cannot be read")


@pytest.mark.parametrize("text", [b"{", b"\xff\xfe", b'{"a": 1, "a": 2}', b"[" * 100_000])
def test_a_header_that_is_not_json(file, text):
    join(file, text, b"")
    refused(file, "not JSON with unique keys")


def test_a_header_that_is_not_a_table(file):
    join(file, b"[1, 2]", b"")
    refused(file, "not a table")


def test_a_file_larger_than_allowed(file):
    os.truncate(file, weights.LARGEST_FILE + 1)  # sparse
    refused(file, r"the file has 1,073,741,825 bytes; expected 9 to 1,073,741,824")


def test_a_pipe_is_not_waited_for(tmp_path):
    path = tmp_path / "pipe.safetensors"
    os.mkfifo(path)
    refused(path, "not a regular file")


def test_a_folder(tmp_path):
    path = tmp_path / "folder.safetensors"
    path.mkdir()
    refused(path, "not a regular file")


def test_nothing_there(tmp_path):
    refused(tmp_path / "none.safetensors", "cannot be opened")


def test_a_loop_of_links(tmp_path):
    path = tmp_path / "loop.safetensors"
    path.symlink_to(path)
    refused(path, "cannot be opened")


def test_a_name_with_a_nul_byte():
    with pytest.raises(InputError, match="the name is not valid"):
        load_weights("a\0b.safetensors")


# The card.


def test_no_card(file):
    header, body = split(file)
    del header["__metadata__"]
    join(file, header, body)
    refused(file, "the card misses or adds: architecture, date")


def test_a_card_with_a_field_missing_or_added(file):
    header, body = split(file)
    header["__metadata__"]["code"] = header["__metadata__"].pop("unit")
    join(file, header, body)
    refused(file, "the card misses or adds: code, unit")


@pytest.mark.parametrize(
    ("name", "text", "finding"),
    [
        ("ndim", "2.0", "ndim is of the wrong kind"),
        ("ndim", "true", "ndim is of the wrong kind"),
        ("task", "5", "task is of the wrong kind"),
        ("labels_used", "0", "labels_used is of the wrong kind"),
        ("sigma_min", '"a"', "sigma_min is of the wrong kind"),
        ("sigma_min", "true", "sigma_min is of the wrong kind"),
        ("sigma_min", "5", "0 <= sigma_min <= sigma_max"),
        ("sigma_max", "NaN", "0 <= sigma_min <= sigma_max"),
        ("sigma_max", "Infinity", "0 <= sigma_min <= sigma_max"),
        ("resolution", "0", "resolution above 0"),
        ("architecture", '["dncnn"]', "architecture is of the wrong kind"),
        ("architecture", '{"kind": {"a": 1}}', "architecture is of the wrong kind"),
        ("metrics", "{", "the card cannot be read"),
        ("metrics", "[" * 5000, "the card cannot be read"),
    ],
)
def test_a_card_that_cannot_be_read(file, name, text, finding):
    header, body = split(file)
    header["__metadata__"][name] = text
    join(file, header, body)
    refused(file, finding)


@pytest.mark.parametrize(
    ("change", "finding"),
    [
        ({"ndim": 3}, "the network denoises 3-D fields; expected one for 2-D fields"),
        ({"unit": "mm"}, "the network works in mm; expected the unit voxel"),
        ({"architecture": {"kind": "resnet"}}, "architecture 'resnet'; expected dncnn"),
        ({"architecture": {}}, "architecture 'None'; expected dncnn"),
        ({"architecture": {"kind": "dncnn", "depth": 10**9}}, "cannot be built .depth is 2 to 64"),
        ({"architecture": {"kind": "dncnn", "hook": "os.system"}}, "cannot be built"),
        ({"architecture": {"kind": "dncnn", "ndim": 3}}, "cannot be built"),
    ],
)
def test_a_card_of_another_network(file, change, finding):
    save_weights(file, NETWORK.state_dict(), dataclasses.replace(CARD, **change))
    refused(file, finding)


def test_every_single_flipped_bit_of_the_header_is_refused_or_harmless(file):
    """No crash and no other error than a refusal; what still loads has the right names and shapes."""
    content = file.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    generator = torch.Generator().manual_seed(0)
    for bit in torch.randperm(8 * (8 + length), generator=generator)[:300].tolist():
        damaged = bytearray(content)
        damaged[bit // 8] ^= 1 << bit % 8
        file.write_bytes(damaged)
        try:
            learned = load_denoiser(file, 2)
        except InputError:
            continue
        assert {n: t.shape for n, t in learned.network.state_dict().items()} == {
            n: t.shape for n, t in NETWORK.state_dict().items()
        }
