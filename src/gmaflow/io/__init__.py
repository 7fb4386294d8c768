"""Files <-> arrays, without torch.

Images and their sizes (`images`), flow files (`flow_files`, `png16`, `xy_jpeg`), OpenEXR (`exr`,
`exr_header`), the flow of whole clips (`clips`, `hdf5_clip`, `tar_shard`), video (`video_reader`,
`video_writer`), masks of pixels to ignore (`masks`), folders in natural order (`folders`), paths
and atomic writes (`paths`), remote files (`remote`), reading and writing in threads (`overlap`),
and folders of results that can be resumed (`resumable`).
"""

from gmaflow.io.clips import ClipReader, ClipWriter, create_clip, open_clip
from gmaflow.io.flow_files import (
    FLOW_ENDINGS,
    FLOW_SUFFIXES,
    KITTI_ENDING,
    FlowArrays,
    ensure_can_encode,
    is_picture,
    name_file,
    read_flow_arrays,
    stem_in,
    stem_of,
    write_flow,
)
from gmaflow.io.folders import find_breaks, list_flows, list_images
from gmaflow.io.images import (
    IMAGE_SUFFIXES,
    PICTURE_SUFFIXES,
    check_bound,
    decode_image,
    encode_png,
    image_to_array,
    read_image,
    scale_image,
    write_image,
)
from gmaflow.io.masks import MaskReader, read_mask
from gmaflow.io.overlap import read_ahead, write_behind
from gmaflow.io.paths import (
    CLIP_SUFFIXES,
    atomic_write,
    ensure_can_fill,
    ensure_can_write,
    files_of,
    is_clip,
)
from gmaflow.io.video_reader import (
    TimedFrame,
    VideoInfo,
    VideoReader,
    check_video_size,
    probe_video,
)
from gmaflow.io.video_writer import VIDEO_OUTPUTS, Sound, VideoWriter, has_sound
from gmaflow.io.xy_jpeg import USUAL_BOUND

__all__ = [
    "CLIP_SUFFIXES",
    "FLOW_ENDINGS",
    "FLOW_SUFFIXES",
    "IMAGE_SUFFIXES",
    "KITTI_ENDING",
    "PICTURE_SUFFIXES",
    "USUAL_BOUND",
    "VIDEO_OUTPUTS",
    "ClipReader",
    "ClipWriter",
    "FlowArrays",
    "MaskReader",
    "Sound",
    "TimedFrame",
    "VideoInfo",
    "VideoReader",
    "VideoWriter",
    "atomic_write",
    "check_bound",
    "check_video_size",
    "create_clip",
    "decode_image",
    "encode_png",
    "ensure_can_encode",
    "ensure_can_fill",
    "ensure_can_write",
    "files_of",
    "find_breaks",
    "has_sound",
    "image_to_array",
    "is_clip",
    "is_picture",
    "list_flows",
    "list_images",
    "name_file",
    "open_clip",
    "probe_video",
    "read_ahead",
    "read_flow_arrays",
    "read_image",
    "read_mask",
    "scale_image",
    "stem_in",
    "stem_of",
    "write_behind",
    "write_flow",
    "write_image",
]
