"""Does each operation of openapi.json by the generated client, and checks each answer by its schema.

Usage: python client.py URL TOKEN, in the folder of openapi.json and of the client `generated`.
"""

import importlib
import json
import pkgutil
import re
import sys
import typing
from urllib.parse import quote

from jsonschema import Draft202012Validator
from openapi_python_client.strings import PythonIdentifier
from referencing import Registry
from referencing.jsonschema import DRAFT202012

sys.path.insert(0, ".")
import generated.api
from generated import AuthenticatedClient

URL, TOKEN = sys.argv[1:]
WORKSPACE, PARTITION = 7, 7
DOCUMENT = json.load(open("openapi.json", encoding="utf-8"))
REGISTRY = Registry().with_resource("urn:api", DRAFT202012.create_resource(DOCUMENT))
METHODS = {"get", "post", "patch", "delete", "put", "head", "options", "trace"}
OPERATIONS = {
    operation["operationId"]: (path, method, operation)
    for path, methods in DOCUMENT["paths"].items()
    for method, operation in methods.items()
    if method in METHODS
}
PATTERNS = [
    (method, re.compile(re.sub(r"\\{\w+\\}", "[^/]+", re.escape(path)) + "$"), id)
    for id, (path, method, _) in OPERATIONS.items()
]
MODULES = {
    module.name.rsplit(".", 1)[-1]: module.name
    for module in pkgutil.walk_packages(generated.api.__path__, "generated.api.")
    if not module.ispkg
}
# Headers of HTTP that any answer may have.
GENERAL_HEADERS = {
    "cache-control", "connection", "content-length", "content-type", "date", "transfer-encoding", "x-accel-buffering",
}
done = set()


def resolved(value):
    """The value, or what it refers to, and the place of that in the document."""
    while "$ref" in value:
        at = DOCUMENT
        for key in value["$ref"].split("/")[1:]:
            at = at[key]
        value = at
    return value


def check_schema(schema, value, what):
    """Checks a value by a schema of the document."""
    absolute = json.loads(json.dumps(schema).replace('"$ref": "#/', '"$ref": "urn:api#/'))
    errors = list(Draft202012Validator(absolute, registry=REGISTRY).iter_errors(value))
    assert not errors, f"{what}: {[error.message for error in errors]}: {value}"


def check_answer(response):
    """Checks that the document has an answer, its headers and its body."""
    response.read()
    request = response.request
    method, path = request.method.lower(), request.url.path
    (id,) = [id for wanted, pattern, id in PATTERNS if wanted == method and pattern.match(path)]
    responses = OPERATIONS[id][2]["responses"]
    status = str(response.status_code)
    what = f"{id} {status}"
    assert status in responses, f"{what} is not in the document: {response.text}"
    answer = resolved(responses[status])
    for name, header in answer.get("headers", {}).items():
        if name in response.headers:
            value = response.headers[name]
            schema = resolved(header)["schema"]
            check_schema(schema, int(value) if schema["type"] == "integer" else value, f"{what} {name}")
    assert "X-Request-Id" in response.headers, what
    documented = {name.lower() for name in answer.get("headers", {})}
    assert set(response.headers) <= documented | GENERAL_HEADERS, f"{what}: {response.headers}"
    if "content" not in answer:
        assert response.content == b"", what
    else:
        type = response.headers["content-type"]
        assert type in answer["content"], f"{what}: {type}"
        schema = answer["content"][type]["schema"]
        if "x-vvm-item" in schema:
            lines = [line for line in response.text.splitlines() if line]
            for line in lines:
                check_schema(schema["x-vvm-item"], json.loads(line), what)
            assert lines, f"{what} has no events"
        else:
            is_text = type == "text/plain"
            check_schema(schema, response.text if is_text else response.json(), what)
    if response.status_code < 400:
        done.add(id)


CLIENT = AuthenticatedClient(
    base_url=URL,
    token=TOKEN,
    raise_on_unexpected_status=True,
    httpx_args={"event_hooks": {"response": [check_answer]}},
)


def call(operation, /, status=200, client=CLIENT, body=None, **arguments):
    """Calls an operation of the generated client. Returns its answer as plain values."""
    module = importlib.import_module(MODULES[PythonIdentifier(operation, "field_")])
    if body is not None:
        types = typing.get_type_hints(module.sync_detailed)["body"]
        kinds = [kind for kind in typing.get_args(types) or [types] if hasattr(kind, "from_dict")]
        arguments["body"] = kinds[0].from_dict(body)
    if "{workspace}" in OPERATIONS[operation][0]:
        arguments.setdefault("workspace", WORKSPACE)
    answer = module.sync_detailed(client=client, **arguments)
    assert answer.status_code == status, f"{operation}: {answer.status_code} {answer.content}"
    parsed = answer.parsed
    return answer.headers, parsed.to_dict() if hasattr(parsed, "to_dict") else parsed


def sample(schema):
    """A value of the schema of a field."""
    samples = {"string": "text", "integer": 3, "number": 0.5, "boolean": True}
    if schema.get("contentEncoding") == "base64":
        return "dGV4dA=="
    if "pattern" in schema:
        return "shop.Article"
    return samples[schema["type"]]


def fields_of(app, table):
    schema = DOCUMENT["components"]["schemas"][f"{app}.{table}.Fields"]
    given = {name: one for name, one in schema["properties"].items() if not one.get("readOnly")}
    # A reference must lead to a record.
    reference = "The id of a record."
    given = {name: one for name, one in given.items() if not one.get("description", "").startswith(reference)}
    return {name: sample(one) for name, one in given.items()}


def ids_of(kind, app):
    """The operations of a kind, by the last part of their ids."""
    prefix = f"{app}.{kind}"
    return {
        id[len(prefix) + 1 :]: id for id in OPERATIONS if id == prefix or id.startswith(f"{prefix}.")
    }


def make_workspace(app, kind):
    _, answer = call(f"{app}.command.sys.CreateWorkspace", body={"args": {"kind": kind, "name": "Corner"}})
    assert answer["wlogOffset"] == 1, answer


def documents(app):
    """Creates a document of each table, and its records. Returns their ids by table."""
    ids = {"sys.WorkspaceDescriptor": 65_536, "sys.NumberCounter65601": 65_601}
    for table, id in ids_of("create_doc", app).items():
        _, answer = call(id, 201, body={"fields": fields_of(app, table)})
        ids[table] = answer["newIds"]["1"]
    rows = [
        {"id": 1, "table": "shop.Article", "fields": {"name": "Tea"}},
        {"id": 2, "table": "shop.Price", "parent": {"id": 1, "container": "prices"}, "fields": {"cents": 5}},
        {"id": 3, "table": "shop.Bill"},
        {"id": 4, "table": "shop.Line", "parent": {"id": 3, "container": "lines"}, "fields": {"article": 1}},
        {"id": 5, "table": "shop.Order"},
        {"id": 6, "table": "shop.Item", "parent": {"id": 5, "container": "items"}, "fields": {"name": "Tea"}},
    ]
    _, answer = call(f"{app}.command.sys.CUD", body={"rows": rows}, idempotency_key="rows")
    for row in rows:
        ids.setdefault(row["table"], answer["newIds"][str(row["id"])])
    _, again = call(f"{app}.command.sys.CUD", body={"rows": rows}, idempotency_key="rows")
    assert again.pop("repeated") is True and again == answer, again
    return ids


def records(app, ids):
    """Reads, changes and deactivates each record."""
    for table, id in ids_of("read_doc", app).items():
        found = ids[table]
        headers, record = call(id, id=found)
        assert record["table"] == table and record["id"] == found, record
        version = record["version"]
        assert headers["etag"] == f'"{version["epoch"]}.{version["offset"]}"', headers
        _, eventual = call(id, id=found, consistency=eventual_of(id))
        assert eventual == record, eventual
        if table in ids_of("create_doc", app):
            given = fields_of(app, table)
            assert record["fields"].items() >= given.items(), record
    for table, id in ids_of("change_doc", app).items():
        headers, before = call(f"{app}.read_doc.{table}", id=ids[table])
        fields = {name: None for name in fields_of(app, table)}
        body = {"fields": fields} if fields else {"isActive": True}
        call(id, id=ids[table], body=body, if_match=headers["etag"])
        _, problem = call(id, 409, id=ids[table], body=body, if_match=headers["etag"])
        assert problem["code"] == "conflict", problem
        _, after = call(f"{app}.read_doc.{table}", id=ids[table])
        assert not set(after["fields"]) & set(fields), after
    _, read = call(f"{app}.read_docs", ids=",".join(map(str, [*ids.values(), 999_999])))
    assert [record["id"] for record in read["docs"]] == list(ids.values()), read
    assert read["missing"] == [999_999] and read["rest"] == [], read
    for id in ids_of("list_docs", app).values():
        _, page = call(id, limit=1)
        assert len(page["docs"]) == 1 and page["next"] == page["docs"][0]["id"], page
        _, rest = call(id, after=page["next"])
        assert rest["docs"] and rest["next"] is None, rest
    for table, id in ids_of("deactivate_doc", app).items():
        call(id, id=ids[table])
        _, after = call(f"{app}.read_doc.{table}", id=ids[table])
        assert after["isActive"] is False, after


def eventual_of(id):
    """The value `eventual` of the parameter, in the form of the generated client."""
    module = importlib.import_module(MODULES[PythonIdentifier(id, "field_")])
    types = typing.get_args(typing.get_type_hints(module.sync_detailed)["consistency"])
    (kind,) = [kind for kind in types if hasattr(kind, "EVENTUAL")]
    return kind.EVENTUAL


def commands(app):
    _, answer = call(f"{app}.command.shop.Echo", body={"args": {"a": [1]}, "rows": []})
    assert answer["result"] == {"a": [1]}, answer
    echo = {"command": "shop.Echo", "args": {"a": [2]}}
    _, answer = call(f"{app}.command_batch", body={"commands": [echo, {"command": "shop.None"}]})
    assert [one["status"] for one in answer["answers"]] == [200, 404], answer


def logs(app):
    _, lines = call(f"{app}.wlog", limit=2)
    assert [json.loads(line)["wlogOffset"] for line in lines.splitlines()] == [1, 2], lines
    _, followed = call(f"{app}.wlog", from_="2", follow=True, limit=1)
    assert json.loads(followed)["wlogOffset"] == 2, followed
    _, lines = call(f"{app}.plog", partition=PARTITION, limit=1)
    assert json.loads(lines)["workspace"] == WORKSPACE, lines


def numbers(app):
    _, listed = call(f"{app}.list_series")
    for series, id in ids_of("read_series", app).items():
        _, one = call(id)
        assert one in listed["series"] and one["series"] == series, one
    for series, id in ids_of("peek_number", app).items():
        _, peeked = call(id)
        if f"{app}.draw_numbers.{series}" in OPERATIONS:
            _, drawn = call(f"{app}.draw_numbers.{series}", body={"count": 2})
            assert drawn["numbers"][0] == peeked["number"] and len(drawn["numbers"]) == 2, drawn
    for id in ids_of("list_gaps", app).values():
        _, gaps = call(id, limit=3)
        assert gaps["next"] is None, gaps


def problems(app):
    """Requests that are refused, also without a token."""
    _, problem = call(f"{app}.read_doc.shop.Bill", 404, id=1)
    assert problem["code"] == "not_found", problem
    _, problem = call(f"{app}.create_doc.shop.Delivery", 400, body={"fields": {"number": 5}})
    assert problem["code"] == "bad_request", problem
    stranger = AuthenticatedClient(
        base_url=URL, token="other", httpx_args={"event_hooks": {"response": [check_answer]}}
    )
    _, problem = call(f"{app}.list_series", 401, client=stranger)
    assert problem["code"] == "unauthenticated", problem


def description():
    headers, described = call("describe", app="acme/empty")
    assert "acme.shop.command.sys.CUD" not in json.dumps(described)
    call("describe", 304, app="acme/empty", if_none_match=headers["etag"])
    for check in ["check", "check_by_post"]:
        call(check)


def main():
    description()
    make_workspace("acme.empty", "Empty")
    make_workspace("acme.shop", "Shop")
    records("acme.shop", documents("acme.shop"))
    commands("acme.shop")
    logs("acme.shop")
    numbers("acme.shop")
    problems("acme.shop")
    # What an application without tables and series has.
    records("acme.empty", {"sys.WorkspaceDescriptor": 65_536})
    logs_of_one("acme.empty")
    call("acme.empty.list_series")
    batch = {"commands": [{"command": "sys.CreateWorkspace", "args": {"kind": "Empty"}}]}
    call("acme.empty.command_batch", body=batch)
    left = sorted(set(OPERATIONS) - done)
    assert not left, f"not done: {left}"
    print(f"all {len(done)} operations were done")


def logs_of_one(app):
    for id, arguments in [(f"{app}.wlog", {}), (f"{app}.plog", {"partition": PARTITION})]:
        _, lines = call(id, **arguments)
        assert len(lines.splitlines()) == 1, lines


if __name__ == "__main__":
    main()
