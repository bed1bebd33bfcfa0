//! `id-ctrl` and `id-ns`: identify structures, field by field, as nvme-cli names them.

use serde_json::{Map, Value, json};

/// How a field is shown.
#[derive(Clone, Copy)]
enum Form {
    /// ASCII, padded with spaces.
    Text,
    /// A number in decimal.
    Decimal,
    /// A number in hexadecimal.
    Hex,
    /// Bytes in hexadecimal.
    Bytes,
    /// Bytes in hexadecimal, as UUIDs are written.
    Uuid,
    /// IEEE OUI: three bytes, most significant first.
    Oui,
}

use Form::{Bytes, Decimal, Hex, Oui, Text, Uuid};

/// A field: name, offset, length, form. Names, forms and order are those of nvme-cli 2.16.
type Field = (&'static str, usize, usize, Form);

/// Offsets: NVM Express Base 2.1, Identify Controller Data Structure.
const CONTROLLER: &[Field] = &[
    ("vid", 0, 2, Hex),
    ("ssvid", 2, 2, Hex),
    ("sn", 4, 20, Text),
    ("mn", 24, 40, Text),
    ("fr", 64, 8, Text),
    ("rab", 72, 1, Decimal),
    ("ieee", 73, 3, Oui),
    ("cmic", 76, 1, Hex),
    ("mdts", 77, 1, Decimal),
    ("cntlid", 78, 2, Hex),
    ("ver", 80, 4, Hex),
    ("rtd3r", 84, 4, Hex),
    ("rtd3e", 88, 4, Hex),
    ("oaes", 92, 4, Hex),
    ("ctratt", 96, 4, Hex),
    ("rrls", 100, 2, Hex),
    ("bpcap", 102, 1, Hex),
    ("nssl", 104, 4, Hex),
    ("plsi", 110, 1, Decimal),
    ("cntrltype", 111, 1, Decimal),
    ("fguid", 112, 16, Uuid),
    ("crdt1", 128, 2, Decimal),
    ("crdt2", 130, 2, Decimal),
    ("crdt3", 132, 2, Decimal),
    ("crcap", 134, 1, Decimal),
    ("nvmsr", 253, 1, Decimal),
    ("vwci", 254, 1, Decimal),
    ("mec", 255, 1, Decimal),
    ("oacs", 256, 2, Hex),
    ("acl", 258, 1, Decimal),
    ("aerl", 259, 1, Decimal),
    ("frmw", 260, 1, Hex),
    ("lpa", 261, 1, Hex),
    ("elpe", 262, 1, Decimal),
    ("npss", 263, 1, Decimal),
    ("avscc", 264, 1, Hex),
    ("apsta", 265, 1, Hex),
    ("wctemp", 266, 2, Decimal),
    ("cctemp", 268, 2, Decimal),
    ("mtfa", 270, 2, Decimal),
    ("hmpre", 272, 4, Decimal),
    ("hmmin", 276, 4, Decimal),
    ("tnvmcap", 280, 16, Decimal),
    ("unvmcap", 296, 16, Decimal),
    ("rpmbs", 312, 4, Hex),
    ("edstt", 316, 2, Decimal),
    ("dsto", 318, 1, Decimal),
    ("fwug", 319, 1, Decimal),
    ("kas", 320, 2, Decimal),
    ("hctma", 322, 2, Hex),
    ("mntmt", 324, 2, Decimal),
    ("mxtmt", 326, 2, Decimal),
    ("sanicap", 328, 4, Hex),
    ("hmminds", 332, 4, Decimal),
    ("hmmaxd", 336, 2, Decimal),
    ("nsetidmax", 338, 2, Decimal),
    ("endgidmax", 340, 2, Decimal),
    ("anatt", 342, 1, Decimal),
    ("anacap", 343, 1, Decimal),
    ("anagrpmax", 344, 4, Decimal),
    ("nanagrpid", 348, 4, Decimal),
    ("pels", 352, 4, Decimal),
    ("domainid", 356, 2, Decimal),
    ("kpioc", 358, 1, Decimal),
    ("mptfawr", 360, 2, Decimal),
    ("megcap", 368, 16, Decimal),
    ("tmpthha", 384, 1, Hex),
    ("cqt", 386, 2, Decimal),
    ("sqes", 512, 1, Hex),
    ("cqes", 513, 1, Hex),
    ("maxcmd", 514, 2, Decimal),
    ("nn", 516, 4, Decimal),
    ("oncs", 520, 2, Hex),
    ("fuses", 522, 2, Hex),
    ("fna", 524, 1, Hex),
    ("vwc", 525, 1, Hex),
    ("awun", 526, 2, Decimal),
    ("awupf", 528, 2, Decimal),
    ("icsvscc", 530, 1, Decimal),
    ("nwpc", 531, 1, Decimal),
    ("acwu", 532, 2, Decimal),
    ("ocfs", 534, 2, Hex),
    ("sgls", 536, 4, Hex),
    ("mnan", 540, 4, Decimal),
    ("maxdna", 544, 16, Decimal),
    ("maxcna", 560, 4, Decimal),
    ("oaqd", 564, 4, Decimal),
    ("rhiri", 568, 1, Decimal),
    ("hirt", 569, 1, Decimal),
    ("cmmrtd", 570, 2, Decimal),
    ("nmmrtd", 572, 2, Decimal),
    ("minmrtg", 574, 1, Decimal),
    ("maxmrtg", 575, 1, Decimal),
    ("trattr", 576, 1, Decimal),
    ("mcudmq", 578, 2, Decimal),
    ("mnsudmq", 580, 2, Decimal),
    ("mcmr", 582, 2, Decimal),
    ("nmcmr", 584, 2, Decimal),
    ("mcdqpc", 586, 2, Decimal),
    ("subnqn", 768, 256, Text),
    ("ioccsz", 1792, 4, Decimal),
    ("iorcsz", 1796, 4, Decimal),
    ("icdoff", 1800, 2, Decimal),
    ("fcatt", 1802, 1, Hex),
    ("msdbd", 1803, 1, Decimal),
    ("ofcs", 1804, 2, Decimal),
];

/// Offsets: NVM Command Set 1.1, Identify Namespace Data Structure.
const NAMESPACE: &[Field] = &[
    ("nsze", 0, 8, Hex),
    ("ncap", 8, 8, Hex),
    ("nuse", 16, 8, Hex),
    ("nsfeat", 24, 1, Hex),
    ("nlbaf", 25, 1, Decimal),
    ("flbas", 26, 1, Hex),
    ("mc", 27, 1, Hex),
    ("dpc", 28, 1, Hex),
    ("dps", 29, 1, Hex),
    ("nmic", 30, 1, Hex),
    ("rescap", 31, 1, Hex),
    ("fpi", 32, 1, Hex),
    ("dlfeat", 33, 1, Decimal),
    ("nawun", 34, 2, Decimal),
    ("nawupf", 36, 2, Decimal),
    ("nacwu", 38, 2, Decimal),
    ("nabsn", 40, 2, Decimal),
    ("nabo", 42, 2, Decimal),
    ("nabspf", 44, 2, Decimal),
    ("noiob", 46, 2, Decimal),
    ("nvmcap", 48, 16, Decimal),
    ("npwg", 64, 2, Decimal),
    ("npwa", 66, 2, Decimal),
    ("npdg", 68, 2, Decimal),
    ("npda", 70, 2, Decimal),
    ("nows", 72, 2, Decimal),
    ("mssrl", 74, 2, Decimal),
    ("mcl", 76, 4, Decimal),
    ("msrc", 80, 1, Decimal),
    ("kpios", 81, 1, Decimal),
    ("nulbaf", 82, 1, Decimal),
    ("kpiodaag", 84, 4, Decimal),
    ("anagrpid", 92, 4, Decimal),
    ("nsattr", 99, 1, Decimal),
    ("nvmsetid", 100, 2, Decimal),
    ("endgid", 102, 2, Decimal),
    ("nguid", 104, 16, Bytes),
    ("eui64", 120, 8, Bytes),
];

/// Where the LBA formats begin, and how many there may be.
const LBA_FORMATS: usize = 128;
const MAX_LBA_FORMATS: usize = 64;
/// Length of an identify structure.
const LENGTH: usize = 4096;

/// `id-ctrl` as text.
///
/// # Errors
/// When the structure is not 4096 bytes long.
pub fn controller_text(raw: &[u8]) -> Result<String, String> {
    whole(raw)?;
    Ok(format!("NVME Identify Controller:\n{}", lines(CONTROLLER.iter(), raw, 10)))
}

/// `id-ctrl` as JSON.
///
/// # Errors
/// When the structure is not 4096 bytes long.
pub fn controller_json(raw: &[u8]) -> Result<Value, String> {
    whole(raw)?;
    Ok(Value::Object(object(CONTROLLER.iter(), raw)))
}

/// `id-ns` as text.
///
/// # Errors
/// When the structure is not 4096 bytes long.
pub fn namespace_text(nsid: u32, raw: &[u8]) -> Result<String, String> {
    whole(raw)?;
    let fields = lines(namespace_fields(raw), raw, 8);
    let mut text = format!("NVME Identify Namespace {nsid}:\n{fields}");
    for (index, format) in lba_formats(raw).into_iter().enumerate() {
        let LbaFormat { ms, ds, rp, in_use } = format;
        let (rp, used) = (c_hex(rp.into()), if in_use { "(in use)" } else { "" });
        text.push_str(&format!("lbaf {index:2} : ms:{ms:<3} lbads:{ds:<2} rp:{rp} {used}\n"));
    }
    Ok(text)
}

/// `id-ns` as JSON.
///
/// # Errors
/// When the structure is not 4096 bytes long.
pub fn namespace_json(raw: &[u8]) -> Result<Value, String> {
    whole(raw)?;
    let mut namespace = object(namespace_fields(raw), raw);
    let formats: Vec<Value> = lba_formats(raw)
        .into_iter()
        .enumerate()
        .map(|(index, format)| {
            let LbaFormat { ms, ds, rp, in_use } = format;
            let in_use = u8::from(in_use);
            json!({ "lbaf": index, "ms": ms, "ds": ds, "rp": rp, "in_use": in_use })
        })
        .collect();
    namespace.insert("lbafs".to_owned(), json!(formats));
    Ok(Value::Object(namespace))
}

/// Those that mean something: NSFEAT says whether the namespace tells what it prefers (OPTPERF).
fn namespace_fields(raw: &[u8]) -> impl Iterator<Item = &'static Field> {
    let preferences = raw[24] >> 4 & 3;
    NAMESPACE.iter().filter(move |(name, ..)| match *name {
        "npwg" | "npwa" | "npda" | "nows" => preferences != 0,
        "npdg" => preferences & 1 != 0,
        _ => true,
    })
}

fn whole(raw: &[u8]) -> Result<(), String> {
    if raw.len() == LENGTH {
        return Ok(());
    }
    Err(format!("the controller's answer has {} bytes, not {LENGTH}", raw.len()))
}

struct LbaFormat {
    ms: u16,
    ds: u8,
    rp: u8,
    in_use: bool,
}

fn lba_formats(raw: &[u8]) -> Vec<LbaFormat> {
    let count = (usize::from(raw[25]) + 1).min(MAX_LBA_FORMATS);
    // FLBAS: the upper two bits of six stand apart.
    let in_use = usize::from(raw[26] & 0xf | (raw[26] >> 5 & 3) << 4);
    (0..count)
        .map(|index| {
            let at = LBA_FORMATS + 4 * index;
            LbaFormat {
                ms: u16::from_le_bytes([raw[at], raw[at + 1]]),
                ds: raw[at + 2],
                rp: raw[at + 3] & 3,
                in_use: index == in_use,
            }
        })
        .collect()
}

fn number(raw: &[u8], at: usize, length: usize) -> u128 {
    raw[at..at + length].iter().rev().fold(0, |sum, byte| (sum << 8) | u128::from(*byte))
}

/// Text of a peer: control characters never reach the terminal.
fn ascii(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    let text: String = bytes[..end]
        .iter()
        .map(|byte| if (0x20..0x7f).contains(byte) { char::from(*byte) } else { '?' })
        .collect();
    text.trim_end().to_owned()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// As C prints it: 0 has no prefix.
fn c_hex(number: u128) -> String {
    if number == 0 { "0".to_owned() } else { format!("{number:#x}") }
}

fn uuid(bytes: &[u8]) -> String {
    let hex = hex(bytes);
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}

fn shown(field: &Field, raw: &[u8]) -> String {
    let (_, at, length, form) = *field;
    let bytes = &raw[at..at + length];
    match form {
        Text => ascii(bytes),
        Decimal => number(raw, at, length).to_string(),
        Hex => c_hex(number(raw, at, length)),
        Bytes => hex(bytes),
        Uuid => uuid(bytes),
        Oui => format!("{:06x}", number(raw, at, length)),
    }
}

fn lines<'a>(fields: impl Iterator<Item = &'a Field>, raw: &[u8], width: usize) -> String {
    fields.map(|field| format!("{:<width$}: {}\n", field.0, shown(field, raw))).collect()
}

fn object<'a>(fields: impl Iterator<Item = &'a Field>, raw: &[u8]) -> Map<String, Value> {
    let value = |field: &Field| match field.3 {
        Text | Bytes | Uuid => json!(shown(field, raw)),
        // Capacities have 128 bits; more than 64 are no number to JSON readers.
        Decimal | Hex | Oui => match u64::try_from(number(raw, field.1, field.2)) {
            Ok(number) => json!(number),
            Err(_) => json!(shown(field, raw)),
        },
    };
    fields.map(|field| (field.0.to_owned(), value(field))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of a namespace with formats of 512 and 4096 bytes, the second in use.
    fn namespace() -> Vec<u8> {
        let mut raw = vec![0; LENGTH];
        (raw[25], raw[26]) = (1, 1);
        (raw[LBA_FORMATS + 2], raw[LBA_FORMATS + 6], raw[LBA_FORMATS + 7]) = (9, 12, 2);
        raw
    }

    #[test]
    fn numbers_look_as_c_prints_them() {
        let mut raw = vec![0; LENGTH];
        raw[525] = 7;
        raw[112..128].copy_from_slice(&[0xa5; 16]);
        let text = controller_text(&raw).unwrap();
        for line in [
            "vid       : 0",
            "vwc       : 0x7",
            "ieee      : 000000",
            "anagrpmax : 0",
            "fguid     : a5a5a5a5-a5a5-a5a5-a5a5-a5a5a5a5a5a5",
        ] {
            assert!(text.lines().any(|it| it == line), "{line} in {text}");
        }
    }

    #[test]
    fn a_namespace_has_narrow_labels_and_says_which_format_is_in_use() {
        let text = namespace_text(1, &namespace()).unwrap();
        for line in [
            "nsze    : 0",
            "kpiodaag: 0",
            "lbaf  0 : ms:0   lbads:9  rp:0 ",
            "lbaf  1 : ms:0   lbads:12 rp:0x2 (in use)",
        ] {
            assert!(text.lines().any(|it| it == line), "{line} in {text}");
        }
    }

    #[test]
    fn formats_have_their_number_and_whether_they_are_in_use() {
        let json = namespace_json(&namespace()).unwrap();
        let expected = json!([
            { "lbaf": 0, "ms": 0, "ds": 9, "rp": 0, "in_use": 0 },
            { "lbaf": 1, "ms": 0, "ds": 12, "rp": 2, "in_use": 1 },
        ]);
        assert_eq!(json["lbafs"], expected);
    }

    /// NVM Command Set, FLBAS: bits 3:0 and 6:5 name one of 64 formats.
    #[test]
    fn the_format_in_use_may_be_one_of_many() {
        let mut raw = namespace();
        (raw[25], raw[26]) = (40, 1 << 6 | 3);
        let json = namespace_json(&raw).unwrap();
        let used = |it: &Value| it["in_use"] == 1;
        assert_eq!(json["lbafs"].as_array().unwrap().iter().position(used), Some(35));
    }

    #[test]
    fn capacities_are_numbers() {
        let mut raw = vec![0; LENGTH];
        raw[280..288].copy_from_slice(&u64::MAX.to_le_bytes());
        raw[304] = 1;
        let json = controller_json(&raw).unwrap();
        assert_eq!(json["tnvmcap"], json!(u64::MAX));
        assert_eq!(json["unvmcap"], json!("18446744073709551616"), "no reader takes it for less");
    }

    #[test]
    fn what_a_namespace_prefers_is_shown_when_it_says_so() {
        let told = |optperf: u8| {
            let mut raw = namespace();
            raw[24] = optperf << 4;
            let json = namespace_json(&raw).unwrap();
            ["npwg", "npwa", "npdg", "npda", "nows"].map(|name| json.get(name).is_some())
        };
        assert_eq!(told(0), [false; 5]);
        assert_eq!(told(1), [true; 5]);
        assert_eq!(told(2), [true, true, false, true, true]);
    }

    #[test]
    fn the_fields_of_newer_controllers_are_there() {
        let json = controller_json(&vec![0; LENGTH]).unwrap();
        for name in ["bpcap", "nssl", "sanicap", "hmpre", "domainid", "megcap", "maxcna", "cqt"] {
            assert_eq!(json[name], 0, "{name}");
        }
    }
}
