//! Addresses to listen at, as text.

use rustix::net::netdevice::name_to_index;
use rustix::net::{AddressFamily, SocketType, socket};
use std::net::{Ipv6Addr, SocketAddr, SocketAddrV6};

/// `ADDR:PORT` in numbers. The interface of an address of a link may stand there by its name, too:
/// `[fe80::1%eth0]:4420`. `None` when the text is something else.
///
/// # Errors
/// It is such an address, and one that nobody can listen at: what is wrong with it, to follow the
/// text.
pub fn socket_address(text: &str) -> Result<Option<SocketAddr>, String> {
    let at = match text.parse() {
        Ok(at) => at,
        Err(_) => {
            let Some((ip, zone, port)) = with_zone(text) else { return Ok(None) };
            SocketAddrV6::new(ip, port, 0, index_of(zone)?).into()
        }
    };
    match at {
        SocketAddr::V6(v6) if v6.ip().is_unicast_link_local() && v6.scope_id() == 0 => {
            let (ip, port) = (v6.ip(), v6.port());
            Err(format!("is there on every link: name the interface, as in [{ip}%eth0]:{port}"))
        }
        at => Ok(Some(at)),
    }
}

fn with_zone(text: &str) -> Option<(Ipv6Addr, &str, u16)> {
    let (inside, port) = text.strip_prefix('[')?.split_once("]:")?;
    let (ip, zone) = inside.split_once('%')?;
    Some((ip.parse().ok()?, zone, port.parse().ok()?))
}

fn index_of(interface: &str) -> Result<u32, String> {
    // Not by /sys/class/net: that may show another network namespace than ours.
    let asked = socket(AddressFamily::UNIX, SocketType::DGRAM, None);
    asked.and_then(|asked| name_to_index(asked, interface)).map_err(|why| match why {
        rustix::io::Errno::NODEV => "is on an interface that this machine does not have".to_owned(),
        why => format!("is on an interface that cannot be looked up: {why}"),
    })
}

#[cfg(test)]
mod tests {
    use super::socket_address;

    #[test]
    fn an_interface_stands_in_an_address_by_name_or_number() {
        let read = |text: &str| socket_address(text).map(|at| at.map(|at| at.to_string()));
        let is = |text: &str| Ok(Some(text.to_owned()));
        // The loopback interface is the first one of each network namespace.
        assert_eq!(read("[fe80::1%lo]:4420"), is("[fe80::1%1]:4420"));
        assert_eq!(read("[fe80::1%7]:0"), is("[fe80::1%7]:0"));
        assert_eq!(read("[::1]:4420"), is("[::1]:4420"));
        assert_eq!(read("127.0.0.1:0"), is("127.0.0.1:0"));
        for text in ["fe80::1%lo:4420", "[fe80::1%lo]", "[fe80::1%lo]:x", "[x%lo]:1", "", "/a%b"] {
            assert_eq!(read(text), Ok(None), "{text}");
        }
        let every = "is there on every link: name the interface, as in [fe80::1%eth0]:4420";
        assert_eq!(read("[fe80::1]:4420"), Err(every.to_owned()));
        let told = "is on an interface that this machine does not have";
        for zone in ["nosuch0", "", "a-name-that-is-long"] {
            assert_eq!(read(&format!("[fe80::1%{zone}]:4420")), Err(told.to_owned()), "{zone}");
        }
    }
}
