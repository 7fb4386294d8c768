"""Bytes <-> arrays: pictures, flow files and video. Nothing here knows of torch."""

from gmaflow.io.atomic import atomic_write, ensure_can_fill, ensure_can_write
from gmaflow.io.flow_arrays import FlowArrays
from gmaflow.io.flow_files import FLOW_SUFFIXES, ensure_can_encode, read_flow, write_flow
from gmaflow.io.folders import KITTI_ENDING, find_breaks, list_flows, list_images
from gmaflow.io.images import (
    IMAGE_SUFFIXES,
    PICTURE_SUFFIXES,
    decode_image,
    encode_png,
    image_to_array,
    read_image,
    scale_image,
    write_image,
)
from gmaflow.io.overlap import read_ahead, write_behind
from gmaflow.io.sound import Sound, has_sound
from gmaflow.io.video import (
    VideoInfo,
    check_video_size,
    probe_video,
    read_frames,
)
from gmaflow.io.video_formats import VIDEO_OUTPUTS
from gmaflow.io.video_reader import TimedFrame, VideoReader
from gmaflow.io.video_writer import VideoWriter

__all__ = [
    "FLOW_SUFFIXES",
    "IMAGE_SUFFIXES",
    "KITTI_ENDING",
    "PICTURE_SUFFIXES",
    "VIDEO_OUTPUTS",
    "FlowArrays",
    "Sound",
    "TimedFrame",
    "VideoInfo",
    "VideoReader",
    "VideoWriter",
    "atomic_write",
    "check_video_size",
    "decode_image",
    "encode_png",
    "ensure_can_encode",
    "ensure_can_fill",
    "ensure_can_write",
    "find_breaks",
    "has_sound",
    "image_to_array",
    "list_flows",
    "list_images",
    "probe_video",
    "read_ahead",
    "read_flow",
    "read_frames",
    "read_image",
    "scale_image",
    "write_behind",
    "write_flow",
    "write_image",
]
