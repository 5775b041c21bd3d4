"""What the OpenAPI page says about each path: schemas and examples."""

from __future__ import annotations

from typing import Any

ABOUT = "Which images to trust: the class that a network gives, and whether the image is like those it was trained on."
ROW = {
    "type": "object",
    "required": ["name", "accepted"],
    "properties": {
        "name": {"type": "string"},
        "class": {"oneOf": [{"type": "string"}, {"type": "integer"}]},
        "class_index": {"type": "integer"},
        "score": {"type": "number", "description": "Higher: more like the training images."},
        "p_value": {
            "type": ["number", "null"],
            "description": "The share of held-out images with a score as low.",
        },
        "accepted": {"type": ["boolean", "null"], "description": "null: the image could not be read."},
        "threshold": {"type": ["number", "null"]},
        "error": {"type": "string", "description": "Why the image could not be read."},
    },
}
IMAGES = {"type": "array", "items": ROW, "description": "A row for each image, in the order sent."}
ANSWER = {"type": "object", "required": ["images"], "properties": {"images": IMAGES}}
REFUSAL = {
    "type": "object",
    "required": ["detail"],
    "properties": {"detail": {"type": "string"}, "images": IMAGES},
}
# one gray pixel as PNG
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNoAAAAggCBd81ytgAAAABJRU5ErkJggg=="
EXAMPLE = {
    "images": [
        {
            "name": "cat.jpg",
            "class": "cat",
            "class_index": 3,
            "score": 11.37,
            "p_value": 0.62,
            "accepted": True,
            "threshold": 7.9,
        },
        {"name": "notes.txt", "accepted": None, "error": "is not a readable image"},
    ]
}


def _json(schema: dict[str, Any], description: str, example: Any = None) -> dict[str, Any]:
    shown = {} if example is None else {"example": example}
    return {"description": description, "content": {"application/json": {"schema": schema, **shown}}}


def _refused(description: str, example: str) -> dict[str, Any]:
    return _json(REFUSAL, description, {"detail": example})


PREDICT: dict[str, Any] = {
    "responses": {
        200: _json(ANSWER, "At least one image could be read.", EXAMPLE),
        400: _refused("No image could be read, or the body is broken.", "no image can be read; a.txt is no image"),
        408: _refused("The request came too slowly.", "the request did not arrive within 30 seconds"),
        413: _refused("Too many bytes or images.", "the request is larger than 33,554,432 bytes"),
        415: _refused("Neither multipart/form-data nor JSON.", "send multipart/form-data or application/json"),
        503: _refused("Too many requests at the same time.", "more than 64 requests are in hand; try again"),
    },
    "openapi_extra": {
        "requestBody": {
            "required": True,
            "content": {
                "multipart/form-data": {
                    "schema": {
                        "type": "object",
                        "required": ["images"],
                        "properties": {
                            "images": {"type": "array", "minItems": 1, "items": {"type": "string", "format": "binary"}}
                        },
                    }
                },
                "application/json": {
                    "schema": {
                        "type": "object",
                        "required": ["images"],
                        "properties": {
                            "images": {
                                "type": "array",
                                "minItems": 1,
                                "items": {"type": "string", "contentEncoding": "base64"},
                            }
                        },
                    },
                    "example": {"images": [PIXEL]},
                },
            },
        }
    },
}
STATUS: dict[int | str, dict[str, Any]] = {
    200: _json({"type": "object", "properties": {"status": {"type": "string"}}}, "It is.", {"status": "ready"})
}
TEXT: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The text format of Prometheus.",
        "content": {"text/plain": {"schema": {"type": "string"}, "example": "oodshape_images_total 12\n"}},
    }
}
