//! Attributes that every block device has in Linux: the device as users see it, and each of its
//! paths, which stand as hidden disks. There is no `dev`: nothing here has a device number.

use super::ObjectKind::{Head, Path};
use super::{Attribute, Dir, ObjectKind, View, ro};
use crate::block_stat::BlockStat;
use alloc::string::{String, ToString};

/// Of devices.
pub(super) const HEAD: &[Attribute] = &[
    size(Head),
    stat(Head),
    hidden(Head),
    read_only(Head),
    nsid(Head),
    uuid(Head),
    nguid(Head),
    eui(Head),
    wide_name(Head),
    command_set(Head),
    metadata_bytes(Head),
    used(Head),
    logical_block_size(Head),
    ro(Head, "max_hw_sectors_kb", "the most that one command reads or writes, KiB", |v| {
        Some((v.head?.last_limits?.max_transfer_bytes / 1024).to_string())
    })
    .at(Dir::Queue),
    ro(Head, "discard_max_bytes", "the most that one command deallocates; 0: it cannot", |v| {
        let head = v.head?;
        let blocks = u64::from(head.last_limits?.max_discard_blocks);
        Some((blocks * u64::from(head.block_bytes)).to_string())
    })
    .at(Dir::Queue),
    ro(Head, "write_zeroes_max_bytes", "the most that one command zeroes; 0: it cannot", |v| {
        let head = v.head?;
        let blocks = match head.zeroes_refused {
            true => 0,
            false => u64::from(head.last_limits?.max_write_zeroes_blocks),
        };
        Some((blocks * u64::from(head.block_bytes)).to_string())
    })
    .at(Dir::Queue),
    ro(Head, "write_cache", "write back when some path has a volatile cache", |v| {
        let cache = v.head?.last_limits?.volatile_write_cache;
        Some(String::from(if cache { "write back" } else { "write through" }))
    })
    .at(Dir::Queue),
];

/// Of paths.
pub(super) const PATH: &[Attribute] = &[
    size(Path),
    stat(Path),
    hidden(Path),
    read_only(Path),
    nsid(Path),
    uuid(Path),
    nguid(Path),
    eui(Path),
    wide_name(Path),
    command_set(Path),
    metadata_bytes(Path),
    used(Path),
    logical_block_size(Path),
];

const fn size(of: ObjectKind) -> Attribute {
    ro(of, "size", "units of 512 bytes; of a path: as its controller says", |v| {
        let head = v.head?;
        let blocks = v.path.map_or(head.blocks, |path| path.blocks);
        Some((blocks.saturating_mul(u64::from(head.block_bytes)) / 512).to_string())
    })
}

const fn stat(of: ObjectKind) -> Attribute {
    ro(
        of,
        "stat",
        "the 17 fields of Linux, of what ended well; see Documentation/block/stat",
        |v| {
            let mut sum = BlockStat::default();
            let mut in_flight = 0;
            if v.path.is_some() {
                for (_, path) in v.path_figures() {
                    sum = sum.with(&path.stat);
                    in_flight += u64::from(path.in_flight);
                }
            } else {
                let id = v.head?.id;
                for head in v.figures.iter().flat_map(|(_, stats)| stats.of_head(id)) {
                    sum = sum.with(&head.stat);
                    in_flight += u64::from(head.in_flight);
                }
            }
            Some(sum.line(in_flight))
        },
    )
}

const fn hidden(of: ObjectKind) -> Attribute {
    ro(of, "hidden", "1 for paths: nobody opens them", |v| {
        Some(u8::from(v.path.is_some()).to_string())
    })
}

const fn read_only(of: ObjectKind) -> Attribute {
    ro(of, "ro", "1 when it is write-protected; a device: on all of its paths", |v| {
        let head = v.head?;
        let protected = match v.path {
            Some(path) => path.write_protected,
            None => head.last_limits.is_some_and(|limits| limits.read_only),
        };
        Some(u8::from(protected).to_string())
    })
}

const fn nsid(of: ObjectKind) -> Attribute {
    ro(of, "nsid", "namespace identifier", |v| Some(v.head?.nsid.to_string()))
}

const fn uuid(of: ObjectKind) -> Attribute {
    ro(of, "uuid", "UUID, when it has one", |v| {
        let uuid = v.head?.ids.uuid;
        (!uuid.is_zero()).then(|| uuid.to_string())
    })
}

const fn nguid(of: ObjectKind) -> Attribute {
    ro(of, "nguid", "NGUID, when it has one", |v| {
        let nguid = v.head?.ids.nguid;
        (!nguid.is_zero()).then(|| nguid.to_string())
    })
}

const fn eui(of: ObjectKind) -> Attribute {
    ro(of, "eui", "EUI64, when it has one", |v| {
        let eui64 = v.head?.ids.eui64;
        (!eui64.is_zero()).then(|| eui64.to_string())
    })
}

const fn wide_name(of: ObjectKind) -> Attribute {
    ro(of, "wwid", "world wide identifier", wwid)
}

const fn command_set(of: ObjectKind) -> Attribute {
    ro(of, "csi", "command set: always 0, NVM", |_| Some(String::from("0")))
}

const fn metadata_bytes(of: ObjectKind) -> Attribute {
    ro(of, "metadata_bytes", "always 0: blocks with metadata are not used", |_| {
        Some(String::from("0"))
    })
}

const fn used(of: ObjectKind) -> Attribute {
    ro(of, "nuse", "blocks in use (NUSE), as of the last scan", |v| {
        let path = v.path.or_else(|| v.head?.paths.first());
        Some(path.map_or(0, |path| path.used_blocks).to_string())
    })
}

const fn logical_block_size(of: ObjectKind) -> Attribute {
    ro(of, "logical_block_size", "bytes of a block", |v| Some(v.head?.block_bytes.to_string()))
        .at(Dir::Queue)
}

fn wwid(view: &View<'_>) -> Option<String> {
    Some(view.head?.wwid())
}
