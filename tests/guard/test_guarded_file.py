"""An exported guard without torch: images are prepared as the library does, pixel by pixel, and judged alike."""

from __future__ import annotations

import base64
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
import pytest

from oodshape import Guard, GuardedFile, InputError, Preprocessing
from oodshape.guard.export.edit_onnx import DATA_LOCATION, EXTERNAL_DATA, FUNCTIONS, HEX, MESSAGES, START, add_checksum
from oodshape.guard.export.recalibrate import recalibrate
from oodshape.images.datasets.digits import load_digits_sets
from oodshape.images.decode.read import open_image

onnx = pytest.importorskip("onnx")
for library in ("onnxscript", "onnxruntime"):
    pytest.importorskip(library)

MODEL = "zoo:digits-convnet"
HOW = [
    Preprocessing((0.4, 0.5, 0.6), (0.3, 0.2, 0.25), 20, 16, "bicubic"),
    Preprocessing((0.4,), (0.3,), (12, 20), None, "bilinear"),
    Preprocessing((0.1, 0.2, 0.3), (0.9, 0.8, 0.7), None, 24, "nearest"),
    Preprocessing((0.5,), (0.5,)),
]


@pytest.fixture(scope="module")
def exported(guard: Guard, digits: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("exported") / "guarded.onnx"
    guard.export(path, MODEL, images=digits / "val")
    return path


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("upright", [False, True])
def test_pixels_are_those_of_the_library(how: Preprocessing, upright: bool, exported: Path, tmp_path: Path) -> None:
    """As `score` prepares them: read by the listing, with torch; here from bytes and from files, without."""
    guarded, exif = GuardedFile(exported), PIL.Image.Exif()
    guarded.preprocessing, guarded.exif, exif[0x0112] = how, "turned upright" if upright else "ignored", 6
    color = PIL.Image.fromarray(np.random.default_rng(0).integers(256, size=(23, 37, 3), dtype=np.uint8))
    pictures = {mode: color.convert(mode) for mode in ("1", "L", "LA", "P", "RGB", "RGBA")}
    pictures["16 bits"] = PIL.Image.fromarray(np.arange(400, dtype=np.uint16).reshape(20, 20) * 160)
    for mode, picture in pictures.items():
        picture.save(path := tmp_path / f"{mode}.png", exif=exif)
        image = open_image(path, upright=upright)
        for given in (path, str(path), path.read_bytes()):
            np.testing.assert_array_equal(guarded.pixels(given), how.pixels(image), err_msg=mode)
        ours, theirs = guarded.prepared([path]), how.batch([image]).numpy()
        np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-6, err_msg=mode)


@pytest.mark.parametrize("per_class", [False, True])
def test_verdicts_are_those_of_the_guard(
    per_class: bool, guard: Guard, exported: Path, digits: Path, tmp_path: Path
) -> None:
    if per_class:
        guard, exported = guard.calibrate(digits / "val", MODEL, alpha=0.2, per_class=True), tmp_path / "guarded.onnx"
        assert len(guard.detector.class_scores) > 1
        guard.export(exported, MODEL, images=digits / "val")
    guarded, live = GuardedFile(exported, threads=1), guard.attach(MODEL)
    files = [*sorted((digits / "test").iterdir())[:30], *sorted((digits / "letters").iterdir())[:30]]
    close = 0
    for ours, theirs in zip(guarded(files), live([str(file) for file in files]), strict=True):
        assert (ours.label, ours.class_index) == (theirs.label, theirs.class_index)
        assert ours.score == pytest.approx(theirs.score, abs=1e-3)
        assert ours.threshold == pytest.approx(theirs.threshold)
        assert ours.p_value == pytest.approx(theirs.p_value, abs=0.08 if per_class else 0.02)
        close += ours.p_value == theirs.p_value and ours.accepted == theirs.accepted
    assert close >= 55  # a score that differs in its last bits may change sides
    assert guarded(files[0]) == guarded(files)[0]
    assert guarded(PIL.Image.open(files[0])) == guarded(files[0])


def test_what_is_no_guarded_file(exported: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no file"):
        GuardedFile(tmp_path / "none.onnx")
    (tmp_path / "text.onnx").write_text("no graph")
    with pytest.raises(InputError, match="has no checksum of oodshape at its end"):
        GuardedFile(tmp_path / "text.onnx")
    (tmp_path / "zeros.onnx").write_bytes(add_checksum(bytes(500)))
    with pytest.raises(InputError, match="is no ONNX file, or a damaged one"):
        GuardedFile(tmp_path / "zeros.onnx")
    buffer = BytesIO()
    PIL.Image.new("L", (20, 16)).save(buffer, "png")
    with pytest.raises(InputError, match="is 20 x 16 pixels, and this network only accepts 16 x 16"):
        GuardedFile(exported)(buffer.getvalue())


def test_no_bit_can_change_without_an_error(exported: Path, tmp_path: Path) -> None:
    whole, rng, file = exported.read_bytes(), np.random.default_rng(3), tmp_path / "flipped.onnx"
    ends = [(len(whole) - 1 - i, bit) for i in range(len(START) + HEX) for bit in range(8)]
    for place, bit in [*zip(rng.integers(len(whole), size=600), rng.integers(8, size=600), strict=True), *ends]:
        flipped = bytearray(whole)
        flipped[place] ^= 1 << bit
        file.write_bytes(flipped)
        with pytest.raises(InputError, match="checksum"):
            GuardedFile(file)


def forged(model: bytes, folder: Path) -> GuardedFile:
    """The file of another model with the right checksum."""
    (folder / "forged.onnx").write_bytes(add_checksum(model))
    return GuardedFile(folder / "forged.onnx")


def numbers(values: Any, dtype: str = "<f4") -> str:
    return base64.b64encode(np.asarray(values, dtype).tobytes()).decode()


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("calibration", numbers([np.nan] * 300), "NaN or infinite"),
        ("calibration", numbers(np.arange(300.0)[::-1]), "must ascend"),
        ("calibration", numbers(np.arange(300.0)), "its threshold is not the one of its calibration scores and alpha"),
        ("calibration", base64.b64encode(b"abc").decode(), "is damaged"),
        ("calibration", "", "must have 1 axes"),
        ("alpha", "nan", "alpha must be a finite number"),
        ("alpha", "7", "alpha must lie in"),
        ("alpha", "0.2", "its threshold is not the one"),
        ("threshold", "3.5", "must have 1 axes"),
        ("threshold", "[99.0]", "its threshold is not the one"),
        ("groups", numbers([1] * 10, "<i4"), "another field has"),
        ("classes", '["a", "b"]', "it has 2 names of classes, its graph has 8 classes"),
        ("classes", '"abcdefgh"', "must be a list of names"),
        ("classes", "[1, 2, 3, 4, 5, 6, 7, 8]", "must be a str"),
        ("classes", "[" * 100_000, "is damaged"),
        ("exif", "x", "must be one of turned upright, ignored"),
        ("preprocessing", '{"mean": [0.3], "std": [1e-99]}', "std positive"),
        ("preprocessing", '{"mean": [0.3], "std": [0.3], "crop": 10000000}', "the limit of pixels"),
        ("preprocessing", None, "has no preprocessing"),
        ("method", None, "is damaged"),
    ],
)
def test_metadata_that_export_cannot_have_written_is_refused(
    key: str, value: str | None, message: str, exported: Path, tmp_path: Path
) -> None:
    """With the right checksum: only the values are wrong."""
    model = onnx.load(exported)
    known = {each.key: each.value for each in model.metadata_props} | {key: value}
    del model.metadata_props[:]
    onnx.helper.set_model_props(model, {name: text for name, text in known.items() if text is not None})
    with pytest.raises(InputError, match=message) as error:
        forged(model.SerializeToString(), tmp_path)
    assert "forged.onnx" in str(error.value)


@pytest.mark.parametrize("place", ["initializer", "attribute", "subgraph", "function", "two values", "0", "60000"])
def test_data_in_other_files_and_other_forged_graphs_are_refused(place: str, exported: Path, tmp_path: Path) -> None:
    model = onnx.load(exported)
    outside = onnx.TensorProto(name="t", data_type=1, dims=[4], data_location=onnx.TensorProto.EXTERNAL)
    outside.external_data.add(key="location", value="../secret.bin")
    constant = onnx.helper.make_node("Constant", [], ["c"], value=outside)
    if place == "initializer":
        model.graph.initializer.append(outside)
    elif place == "attribute":
        model.graph.node.append(constant)
    elif place == "function":  # some that call each other make a graph of any size
        node = onnx.helper.make_node("Neg", ["a"], ["b"])
        model.functions.append(onnx.helper.make_function("local", "f", ["a"], ["b"], [node], []))
    elif place == "two values":  # programs differ in which of them they take
        model.metadata_props.add(key="method", value="another")
    elif place.isdecimal():  # the size of the images, one of which is made and scored when a service starts
        for side in model.graph.input[0].type.tensor_type.shape.dim[2:]:
            side.dim_value = int(place)
    else:
        inner = onnx.helper.make_graph([constant], "inner", [], [])
        model.graph.node.append(onnx.helper.make_node("If", ["x"], ["y"], then_branch=inner, else_branch=inner))
    with pytest.raises(
        InputError,
        match="in another file|local functions|two values of one|limit of pixels|resize must",
    ):
        forged(model.SerializeToString(), tmp_path)


def test_every_message_with_a_tensor_is_looked_into() -> None:
    found, left = dict[str, dict[int, str]](), [onnx.ModelProto.DESCRIPTOR]
    while left:
        message = left.pop()
        if message.name not in found:
            inside = {field.number: field.message_type for field in message.fields if field.message_type}
            found[message.name] = {number: kind.name for number, kind in inside.items()}
            left += inside.values()
    del found["FunctionProto"], found["ModelProto"][FUNCTIONS]  # refused
    holds = {"TensorProto"}
    while more := {name for name, inside in found.items() if holds & set(inside.values())} - holds:
        holds |= more
    wanted = {name: {n: kind for n, kind in found[name].items() if kind in holds} for name in holds - {"TensorProto"}}
    metadata = onnx.ModelProto.DESCRIPTOR.fields_by_name["metadata_props"]
    wanted["ModelProto"][metadata.number] = metadata.message_type.name
    full = {f"{name}Proto": {n: f"{kind}Proto" for n, kind in each.items()} for name, each in MESSAGES.items()}
    assert full == wanted
    fields = onnx.TensorProto.DESCRIPTOR.fields_by_name
    assert (fields["external_data"].number, fields["data_location"].number) == (EXTERNAL_DATA, DATA_LOCATION)


@pytest.mark.parametrize(("text", "said"), [(b"optfs-e", r"is damaged \(UnicodeDecodeError"), (b"Conv", "codec")])
def test_what_is_no_text_is_an_error(
    text: bytes, said: str, exported: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    model = exported.read_bytes()[: -len(START) - HEX].replace(text, text[:-2] + b"\xe3(")
    with pytest.raises(InputError, match=said):
        forged(model, tmp_path)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("copies", [0, 1, 2])
def test_a_graph_in_two_pieces_with_any_number_of_defaults_is_calibrated(
    copies: int, exported: Path, tmp_path: Path
) -> None:
    """Protobuf merges the pieces; other runtimes must find the new threshold, and no other."""
    model, piece = onnx.load(exported), onnx.ModelProto()
    [threshold] = [each for each in model.graph.initializer if each.name == "threshold"]
    model.graph.initializer.remove(threshold)
    piece.graph.initializer.extend([threshold] * copies)
    for entry in model.metadata_props:
        entry.value = "false" if entry.key == "held_out" else entry.value
    parts = model.SerializeToString()[: -len(START) - HEX] + piece.SerializeToString()
    made = recalibrate(forged(parts, tmp_path), tmp_path / "new.onnx", None, 0.3)
    assert made.guarantee.startswith("no guarantee")  # another alpha does not give a file one
    found = [each for each in onnx.load(tmp_path / "new.onnx").graph.initializer if each.name == "threshold"]
    expected = GuardedFile(tmp_path / "new.onnx").metadata.threshold
    assert [onnx.numpy_helper.to_array(each).tolist() for each in found] == [expected.tolist()]


def test_the_names_of_nodes_do_not_reach_the_terminal(
    exported: Path, digits: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The runtime would print them as they are; the error has them, escaped."""
    model = onnx.load(exported)
    [made] = [node for node in model.graph.node if "score" in node.output]
    made.output[list(made.output).index("score")] = "first"
    model.graph.initializer.append(onnx.helper.make_tensor("shape", onnx.TensorProto.INT64, [1], [7]))
    model.graph.node.append(onnx.helper.make_node("Reshape", ["first", "shape"], ["score"], name="\x1b[2Jnode"))
    with pytest.raises(InputError, match=r"the graph of .* fails") as error:
        forged(model.SerializeToString(), tmp_path)(min((digits / "test").iterdir()))
    assert "\\x1b[2Jnode" in str(error.value)
    assert "\x1b" not in str(error.value) + "".join(capfd.readouterr())


def test_a_graph_that_gives_something_else_is_an_error(exported: Path, digits: Path, tmp_path: Path) -> None:
    model = onnx.load(exported)
    [score] = [output for output in model.graph.output if output.name == "score"]
    [made] = [node for node in model.graph.node if "score" in node.output]
    made.output[list(made.output).index("score")] = "first"
    model.graph.node.append(onnx.helper.make_node("Concat", ["first", "first"], ["score"], axis=0))
    score.type.tensor_type.shape.dim[0].dim_param = "twice"
    with pytest.raises(InputError, match=r"gives float32\[2\], not float32\[1\]|the graph of .* fails"):
        forged(model.SerializeToString(), tmp_path)(min((digits / "test").iterdir()))


def test_turned_images_are_seen_as_score_sees_them(guard: Guard, digits: Path, tmp_path: Path) -> None:
    """A guard that turns images upright; the verdicts above are those of one that does not."""
    files = [tmp_path / f"{turn}.png" for turn in range(9)]
    for turn, file in enumerate(files):
        exif = PIL.Image.Exif()
        exif[0x0112] = turn
        PIL.Image.fromarray(load_digits_sets()["test"].images[7 * turn]).save(file, exif=exif)
    upright = Guard(guard.detector, replace(guard.about, upright=True))
    upright.export(tmp_path / "guarded.onnx", MODEL, images=digits / "val")
    wanted = [row.score for row in upright.score(files, MODEL)]
    served = GuardedFile(tmp_path / "guarded.onnx")
    for images in (files, [PIL.Image.open(file) for file in files]):
        np.testing.assert_allclose([answer.score for answer in served(images)], wanted, atol=1e-3)
    ignored = [row.score for row in guard.score(files, MODEL)]
    assert sum(one != other for one, other in zip(ignored, wanted, strict=True)) > 4
