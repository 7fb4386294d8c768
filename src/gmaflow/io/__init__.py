"""Files <-> arrays, without torch.

Images and their sizes (`images`), flow files (`flow_files`, `png16`), OpenEXR (`exr`,
`exr_header`), video (`video_reader`, `video_writer`), masks of pixels to ignore (`masks`), folders
in natural order (`folders`), paths and atomic writes (`paths`), reading and writing in threads
(`overlap`), and folders of results that can be resumed (`resumable`).
"""

from gmaflow.io.flow_files import (
    FLOW_SUFFIXES,
    KITTI_ENDING,
    FlowArrays,
    ensure_can_encode,
    is_picture,
    read_flow_arrays,
    write_flow,
)
from gmaflow.io.folders import find_breaks, list_flows, list_images
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
from gmaflow.io.masks import MaskReader, read_mask
from gmaflow.io.overlap import read_ahead, write_behind
from gmaflow.io.paths import atomic_write, ensure_can_fill, ensure_can_write
from gmaflow.io.video_reader import (
    TimedFrame,
    VideoInfo,
    VideoReader,
    check_video_size,
    probe_video,
    read_frames,
)
from gmaflow.io.video_writer import VIDEO_OUTPUTS, Sound, VideoWriter, has_sound

__all__ = [
    "FLOW_SUFFIXES",
    "IMAGE_SUFFIXES",
    "KITTI_ENDING",
    "PICTURE_SUFFIXES",
    "VIDEO_OUTPUTS",
    "FlowArrays",
    "MaskReader",
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
    "is_picture",
    "list_flows",
    "list_images",
    "probe_video",
    "read_ahead",
    "read_flow_arrays",
    "read_frames",
    "read_image",
    "read_mask",
    "scale_image",
    "write_behind",
    "write_flow",
    "write_image",
]
