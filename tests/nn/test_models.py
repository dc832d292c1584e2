"""One forward contract over every model."""

from __future__ import annotations

import itertools
import json

import pytest
import torch

from penstock import ColumnSchema, Schema
from penstock.core.errors import ArtefactError, DataError, ParameterError, SchemaError
from penstock.embedding import EmbeddingTables
from penstock.nn import DLRM, MLP, DCNv2, DeepFM, from_config

SCHEMA = Schema(
    [
        ColumnSchema("label", "int8", role="label"),
        ColumnSchema("a", "int64", role="categorical", cardinality=7),
        ColumnSchema("x", "float32", role="continuous"),
        ColumnSchema("b", "int64", role="categorical", cardinality=5),
        ColumnSchema("y", "float32", role="continuous"),
        ColumnSchema("tags", "int64", role="categorical", is_list=True, cardinality=9),
    ]
)
MODELS = {
    "DLRM": lambda schema: DLRM(schema, 4, bottom=(8,), top=(8, 4)),
    "DCNv2": lambda schema: DCNv2(schema, 4, hidden=(8,), num_cross=2),
    "DCNv2-stacked": lambda schema: DCNv2(schema, 4, hidden=(8,), num_cross=2, rank=3, structure="stacked"),
    "DeepFM": lambda schema: DeepFM(schema, 4, hidden=(8,)),
    "MLP": lambda schema: MLP(schema, 4, hidden=(8, 4), dropout=0.5),
    "DLRM-linear": lambda schema: DLRM(schema, 4, bottom=(8,), top=(8, 4), linear=True),
    "DCNv2-linear": lambda schema: DCNv2(schema, 4, hidden=(8,), num_cross=2, linear=True),
    "DeepFM-linear": lambda schema: DeepFM(schema, 4, hidden=(8,), linear=True),
    "MLP-linear": lambda schema: MLP(schema, 4, hidden=(8, 4), linear=True),
}


def inputs(rows: int = 6):
    torch.manual_seed(0)
    names = ["a", "b", "tags"]
    return torch.randn(rows, 2), {name: torch.randn(rows, 4, requires_grad=True) for name in names}


@pytest.fixture(params=MODELS)
def model(request):
    torch.manual_seed(1)
    return MODELS[request.param](SCHEMA).eval()


def test_a_dict_and_a_stack_give_the_same(model) -> None:
    dense, embeddings = inputs()
    logits = model(dense, embeddings)
    assert logits.shape == (6,)
    stacked = torch.stack([embeddings[n] for n in ("a", "b", "tags")], 1)
    torch.testing.assert_close(model(dense, stacked), logits)
    shuffled = {n: embeddings[n] for n in ("tags", "b", "a")}
    torch.testing.assert_close(model(dense, shuffled), logits)


def test_every_input_gets_a_gradient(model) -> None:
    dense, embeddings = inputs()
    dense.requires_grad_()
    model(dense, embeddings).sum().backward()
    for name, tensor in {**embeddings, "dense": dense}.items():
        assert tensor.grad is not None and tensor.grad.abs().sum() > 0, name


def test_sequences_are_summed(model) -> None:
    dense, embeddings = inputs()
    sequence = torch.randn(6, 3, 4)
    torch.testing.assert_close(
        model(dense, {**embeddings, "tags": sequence}), model(dense, {**embeddings, "tags": sequence.sum(1)})
    )


def test_a_model_is_rebuilt_from_its_description(model) -> None:
    again = from_config(model.config()).eval()
    again.load_state_dict(model.state_dict())
    dense, embeddings = inputs()
    torch.testing.assert_close(again(dense, embeddings), model(dense, embeddings))


def test_rows_do_not_see_each_other(model) -> None:
    dense, embeddings = inputs()
    one = model(dense[2:3], {n: e[2:3] for n, e in embeddings.items()})
    torch.testing.assert_close(one, model(dense, embeddings)[2:3])


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("roles", [["continuous"], ["categorical"]], ids=str)
def test_one_kind_of_column_is_enough(name, roles) -> None:
    schema = SCHEMA.select(roles=roles)
    model = MODELS[name](schema)
    dense, embeddings = inputs()
    dense = dense[:, : len(model.continuous)]
    assert model(dense, {n: embeddings[n] for n in model.categorical}).shape == (6,)


def test_wrong_shapes_are_named(model) -> None:
    dense, embeddings = inputs()
    with pytest.raises(DataError, match=r"continuous must be \(B, 2\), got \(6, 1\)"):
        model(dense[:, :1], embeddings)
    with pytest.raises(DataError, match=r"embeddings of 'b' must be \(B, 4\), got \(6, 3\)"):
        model(dense, {**embeddings, "b": torch.zeros(6, 3)})
    with pytest.raises(KeyError, match="'tags' is not in the embeddings"):
        model(dense, {n: embeddings[n] for n in ("a", "b")})


def test_dlrm_is_its_formula() -> None:
    model = MODELS["DLRM"](SCHEMA)
    dense, embeddings = inputs()
    vectors = [model.bottom(dense), *(embeddings[n] for n in ("a", "b", "tags"))]
    dots = [(vectors[i] * vectors[j]).sum(1) for i, j in itertools.product(range(4), range(4)) if j < i]
    expected = model.top(torch.cat([vectors[0], torch.stack(dots, 1)], 1)).squeeze(1)
    torch.testing.assert_close(model(dense, embeddings), expected)


@pytest.mark.parametrize("name", ["DLRM", "DCNv2", "DeepFM"])
def test_the_linear_part_is_added(name) -> None:
    plain, both = MODELS[name](SCHEMA), MODELS[f"{name}-linear"](SCHEMA)
    assert not both.load_state_dict(plain.state_dict(), strict=False).unexpected_keys
    with torch.no_grad():
        both.linear.weight.copy_(torch.tensor([0.1, -0.2]))
        both.linear.bias.fill_(0.05)
    dense, embeddings = inputs()
    by_number = dense[:, 0] * 1.0 - dense[:, 1] * 2.0 + 0.5  # parameters count ten times
    by_id = sum(embeddings[n][:, 0] for n in ("a", "b", "tags"))
    rest = {n: torch.cat([torch.zeros(6, 1), e[:, 1:]], 1) for n, e in embeddings.items()}
    torch.testing.assert_close(both(dense, embeddings), plain(dense, rest) + by_number + by_id)


@pytest.mark.parametrize("kind", [DLRM, DCNv2, MLP])
def test_a_network_can_begin_at_zero_beside_the_linear_part(kind) -> None:
    model = kind(SCHEMA, 4, linear="first")
    dense, embeddings = inputs()
    by_id = sum(embeddings[n][:, 0] for n in ("a", "b", "tags"))
    torch.testing.assert_close(model(dense, embeddings), by_id)
    model(dense, embeddings).square().sum().backward()
    moved = [n for n, p in model.named_parameters() if p.grad is not None and p.grad.abs().sum() > 0]
    assert any("linear" not in name for name in moved)  # the layer at zero learns, and those before it after that
    assert type(from_config(model.config())) is type(model)


def test_deepfm_pairs_are_its_formula() -> None:
    model = MODELS["DeepFM"](SCHEMA)
    dense, embeddings = inputs()
    factors = [embeddings[n] for n in ("a", "b", "tags")] + [dense[:, i : i + 1] * model.factors[i] for i in range(2)]
    pairs = sum((p * q).sum(1) for p, q in itertools.combinations(factors, 2))
    everything = torch.cat([dense, *(embeddings[n] for n in ("a", "b", "tags"))], 1)
    expected = pairs + model.first_order(everything).squeeze(1) + model.deep(everything).squeeze(1)
    torch.testing.assert_close(model(dense, embeddings), expected, rtol=1e-4, atol=1e-5)


# Embeddings of several dims.

DIMS = {"a": 4, "b": 2, "tags": 4}
SEVERAL = {
    "DLRM": lambda: DLRM(SCHEMA, DIMS, bottom=(8,), top=(8, 4), linear=True),
    "DCNv2": lambda: DCNv2(SCHEMA, DIMS, hidden=(8,), num_cross=2),
    "DeepFM": lambda: DeepFM(SCHEMA, DIMS, hidden=(8,)),
    "MLP": lambda: MLP(SCHEMA, DIMS, hidden=(8, 4), linear=True),
}


@pytest.mark.parametrize("name", SEVERAL)
def test_columns_may_have_embeddings_of_several_dims(name: str) -> None:
    torch.manual_seed(1)
    model = SEVERAL[name]()
    dense, embeddings = inputs()
    embeddings = {n: e.detach()[:, : DIMS[n]].clone().requires_grad_() for n, e in embeddings.items()}
    logits = model(dense, embeddings)
    torch.testing.assert_close(model(dense, torch.cat([embeddings[n] for n in DIMS], 1)), logits)
    again = from_config(json.loads(json.dumps(model.config())))
    again.load_state_dict(model.state_dict())
    torch.testing.assert_close(again(dense, embeddings), logits)
    logits.sum().backward()
    assert all(part.grad.abs().sum() > 0 for part in embeddings.values())
    with pytest.raises(DataError, match=r"embeddings of 'b' must be \(B, 2\), got \(6, 4\)"):
        model(dense, {**embeddings, "b": embeddings["a"]})
    with pytest.raises(DataError, match=r"embeddings must be \(B, 10\), got \(6, 12\)"):
        model(dense, torch.zeros(6, 12))


def test_dlrm_of_several_dims_is_its_formula() -> None:
    model = DLRM(SCHEMA, DIMS, bottom=(8,), top=(8, 4))
    dense, embeddings = inputs()
    embeddings["b"] = embeddings["b"][:, :2]
    projected = embeddings["b"] @ model.projection.matrices["2"].weight.T
    vectors = [model.bottom(dense), embeddings["a"], embeddings["tags"], projected]
    dots = [(vectors[i] * vectors[j]).sum(1) for i, j in itertools.product(range(4), range(4)) if j < i]
    expected = model.top(torch.cat([vectors[0], torch.stack(dots, 1)], 1)).squeeze(1)
    torch.testing.assert_close(model(dense, embeddings), expected)
    unknown = model.of_one_dim(torch.zeros(1, 10))
    assert unknown.shape == (1, 3, 4) and not unknown.any()  # what is not known stays zeros


def test_bad_arguments() -> None:
    with pytest.raises(ParameterError, match=r"DLRM\.embedding_dim has nothing for 'tags'"):
        DLRM(SCHEMA, {"a": 4, "b": 4})
    with pytest.raises(ParameterError, match=r"MLP\.embedding_dim names 'c'"):
        MLP(SCHEMA, {**DIMS, "c": 4})
    with pytest.raises(ParameterError, match=r"DLRM.top must be a list, each item an int ≥ 1, got \(0,\)"):
        DLRM(SCHEMA, top=(0,))
    with pytest.raises(ParameterError, match=r"DCNv2\.structure must be one of 'parallel', 'stacked'"):
        DCNv2(SCHEMA, structure="both")
    with pytest.raises(SchemaError, match="needs columns with the role"):
        MLP(Schema([ColumnSchema("a", "int64")]))
    with pytest.raises(ArtefactError, match="unknown model 'system'"):
        from_config({"class": "system", "schema": SCHEMA.to_dict(), "arguments": {}})
    with pytest.raises(ArtefactError, match="MLP has no argument 'evil'"):
        from_config({"class": "MLP", "schema": SCHEMA.to_dict(), "arguments": {"evil": 1}})


# On-device tables.

BATCH = {
    "a": torch.tensor([0, 6, 3]),
    "b": torch.tensor([4, 4, 0]),
    "tags": (torch.tensor([8, 1, 1]), torch.tensor([0, 2, 2, 3])),
}


@pytest.mark.parametrize("pooling", ["sum", "mean", "sqrt_n"])
@pytest.mark.parametrize("sparse", [False, True])
def test_tables_look_up_and_pool(pooling, sparse) -> None:
    tables = EmbeddingTables(SCHEMA, 4, pooling=pooling, sparse=sparse)
    found = tables(BATCH)
    parts = dict(zip(tables.names, tables.weight.split(tables.sizes), strict=True))
    torch.testing.assert_close(found[:, 0], parts["a"][BATCH["a"]])
    torch.testing.assert_close(found[:, 1], parts["b"][BATCH["b"]])
    divisor = {"sum": 1, "mean": 2, "sqrt_n": 2**0.5}[pooling]
    expected = torch.stack([(parts["tags"][8] + parts["tags"][1]) / divisor, torch.zeros(4), parts["tags"][1]])
    torch.testing.assert_close(found[:, 2], expected)
    found.sum().backward()
    assert tables.weight.grad.is_sparse == sparse
    assert tables.weight.grad.to_dense()[0].abs().sum() > 0


def test_padded_lists_and_plain_columns() -> None:
    schema = SCHEMA.select(["a", "b"])
    tables = EmbeddingTables(schema, 4)
    padded = {"a": torch.tensor([[1, 2], [3, 3]]), "b": torch.tensor([0, 1])}
    torch.testing.assert_close(tables(padded)[0, 0], tables.weight[1] + tables.weight[2])


def test_ids_beyond_a_table_are_refused() -> None:
    tables = EmbeddingTables(SCHEMA, 4)
    with pytest.raises(DataError, match=r"column 'b': ids must lie in \[0, 5\), got 4 to 5"):
        tables({**BATCH, "b": torch.tensor([4, 5, 4])})
    with pytest.raises(SchemaError, match="column 'free' has no cardinality"):
        EmbeddingTables(Schema([ColumnSchema("free", "int64", role="categorical")]))
