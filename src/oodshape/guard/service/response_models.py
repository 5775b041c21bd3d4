"""The requests and answers of the service, as its OpenAPI page describes them."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field

# one grey pixel as PNG
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNoAAAAggCBd81ytgAAAABJRU5ErkJggg=="


class Images(BaseModel):
    """Images as base64."""

    images: list[str] = Field(min_length=1, examples=[[PIXEL]])


class ScoredImage(BaseModel):
    """The answer for one image."""

    name: str = Field(examples=["cat.jpg"])
    label: str | int = Field(alias="class", examples=["cat"])
    class_index: int
    score: float = Field(description="Higher: more like the training images.")
    p_value: float | None = Field(description="The fraction of calibration images that score this low or lower.")
    accepted: bool
    threshold: float | None = Field(description="The smallest score that is accepted.")


class UnreadableImage(BaseModel):
    """An image that could not be read."""

    name: str = Field(examples=["notes.txt"])
    accepted: None
    error: str = Field(examples=["is not a readable image"])


class Answer(BaseModel):
    """One row per image, in the order sent."""

    images: list[ScoredImage | UnreadableImage]


class Refusal(BaseModel):
    """Why a request has no scores."""

    detail: str
    images: list[ScoredImage | UnreadableImage] = []


class Status(BaseModel):
    """The state of the service."""

    status: str


class Served(BaseModel):
    """The served guard."""

    oodshape: str
    method: str
    classes: list[str] | int
    alpha: float | None
    calibration_images: int
    guarantee: str


REFUSALS: dict[int | str, dict[str, Any]] = {
    status: {"model": Refusal, "description": description}
    for status, description in (
        (400, "No image could be read, or the body is malformed."),
        (401, "The bearer token is missing or wrong."),
        (408, "The request arrived too slowly."),
        (413, "Too many bytes or images, or an image that takes too long to decode."),
        (415, "Neither multipart/form-data nor application/json."),
        (429, "Too many requests of this address at the same time."),
        (503, "Too many requests at the same time, or no answer in time; see Retry-After."),
    )
}
FILES = {"type": "array", "minItems": 1, "items": {"type": "string", "format": "binary"}}
BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": {"type": "object", "required": ["images"], "properties": {"images": FILES}}
            },
            "application/json": {"schema": Images.model_json_schema(), "example": {"images": [PIXEL]}},
        },
    }
}
