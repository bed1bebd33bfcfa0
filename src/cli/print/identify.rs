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
    /// IEEE OUI: three bytes, most significant first.
    Oui,
}

use Form::{Bytes, Decimal, Hex, Oui, Text};

/// A field: name, offset, length, form. Offsets: NVM Express Base 2.0, figure 275.
type Field = (&'static str, usize, usize, Form);

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
    ("cntrltype", 111, 1, Decimal),
    ("fguid", 112, 16, Bytes),
    ("crdt1", 128, 2, Decimal),
    ("crdt2", 130, 2, Decimal),
    ("crdt3", 132, 2, Decimal),
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
    ("tnvmcap", 280, 16, Decimal),
    ("unvmcap", 296, 16, Decimal),
    ("kas", 320, 2, Decimal),
    ("anatt", 342, 1, Decimal),
    ("anacap", 343, 1, Decimal),
    ("anagrpmax", 344, 4, Decimal),
    ("nanagrpid", 348, 4, Decimal),
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
    ("subnqn", 768, 256, Text),
    ("ioccsz", 1792, 4, Decimal),
    ("iorcsz", 1796, 4, Decimal),
    ("icdoff", 1800, 2, Decimal),
    ("fcatt", 1802, 1, Hex),
    ("msdbd", 1803, 1, Decimal),
    ("ofcs", 1804, 2, Decimal),
];

/// Offsets: NVM Command Set 1.0, figure 97.
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
    Ok(format!("NVME Identify Controller:\n{}", lines(CONTROLLER, raw)))
}

/// `id-ctrl` as JSON.
///
/// # Errors
/// When the structure is not 4096 bytes long.
pub fn controller_json(raw: &[u8]) -> Result<Value, String> {
    whole(raw)?;
    Ok(Value::Object(object(CONTROLLER, raw)))
}

/// `id-ns` as text.
///
/// # Errors
/// When the structure is not 4096 bytes long.
pub fn namespace_text(nsid: u32, raw: &[u8]) -> Result<String, String> {
    whole(raw)?;
    let mut text = format!("NVME Identify Namespace {nsid}:\n{}", lines(NAMESPACE, raw));
    for (index, (ms, ds, rp)) in lba_formats(raw).into_iter().enumerate() {
        let used = if usize::from(raw[26] & 0xf) == index { " (in use)" } else { "" };
        text.push_str(&format!("lbaf {index:2} : ms:{ms:<3} lbads:{ds:<2} rp:{rp:#x}{used}\n"));
    }
    Ok(text)
}

/// `id-ns` as JSON.
///
/// # Errors
/// When the structure is not 4096 bytes long.
pub fn namespace_json(raw: &[u8]) -> Result<Value, String> {
    whole(raw)?;
    let mut namespace = object(NAMESPACE, raw);
    let formats: Vec<Value> = lba_formats(raw)
        .into_iter()
        .map(|(ms, ds, rp)| json!({ "ms": ms, "ds": ds, "rp": rp }))
        .collect();
    namespace.insert("lbafs".to_owned(), json!(formats));
    Ok(Value::Object(namespace))
}

fn whole(raw: &[u8]) -> Result<(), String> {
    if raw.len() == LENGTH {
        return Ok(());
    }
    Err(format!("the controller's answer has {} bytes, not {LENGTH}", raw.len()))
}

fn lba_formats(raw: &[u8]) -> Vec<(u64, u64, u64)> {
    let count = (usize::from(raw[25]) + 1).min(MAX_LBA_FORMATS);
    (0..count)
        .map(|index| {
            let at = LBA_FORMATS + 4 * index;
            (number(raw, at, 2) as u64, raw[at + 2].into(), (raw[at + 3] & 3).into())
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

fn shown(field: &Field, raw: &[u8]) -> String {
    let (_, at, length, form) = *field;
    let bytes = &raw[at..at + length];
    match form {
        Text => ascii(bytes),
        Decimal => number(raw, at, length).to_string(),
        Hex => format!("{:#x}", number(raw, at, length)),
        Bytes => hex(bytes),
        Oui => format!("{:06x}", number(raw, at, length)),
    }
}

fn lines(fields: &[Field], raw: &[u8]) -> String {
    fields.iter().map(|field| format!("{:<9} : {}\n", field.0, shown(field, raw))).collect()
}

fn object(fields: &[Field], raw: &[u8]) -> Map<String, Value> {
    let value = |field: &Field| match field.3 {
        Text | Bytes => json!(shown(field, raw)),
        // 128-bit capacities exceed what JSON readers take as a number: text, as in nvme-cli.
        Decimal | Hex | Oui if field.2 > 8 => json!(shown(field, raw)),
        Decimal | Hex | Oui => json!(number(raw, field.1, field.2) as u64),
    };
    fields.iter().map(|field| (field.0.to_owned(), value(field))).collect()
}
