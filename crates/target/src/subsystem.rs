//! A subsystem: its name, who may use it, its namespaces.

use crate::config::SubsystemConfig;
use crate::namespace::Namespace;
use alloc::string::String;
use alloc::vec::Vec;
use anabranch_proto::nvme::Nqn;

#[derive(Debug)]
pub(crate) struct Subsystem {
    pub(crate) nqn: Nqn,
    pub(crate) serial: String,
    pub(crate) model: String,
    /// Every host may connect, whatever the list says.
    pub(crate) allow_any: bool,
    pub(crate) allowed_hosts: Vec<Nqn>,
    /// Sorted by NSID.
    pub(crate) namespaces: Vec<Namespace>,
}

impl Subsystem {
    pub(crate) fn new(config: SubsystemConfig, generation: &mut u64) -> Subsystem {
        let mut namespaces: Vec<Namespace> = config
            .namespaces
            .iter()
            .map(|namespace| {
                *generation += 1;
                Namespace::new(namespace, &config.nqn, *generation)
            })
            .collect();
        namespaces.sort_by_key(|namespace| namespace.nsid);
        Subsystem {
            nqn: config.nqn,
            serial: config.serial,
            model: config.model,
            allow_any: config.allowed_hosts.is_empty(),
            allowed_hosts: config.allowed_hosts,
            namespaces,
        }
    }

    pub(crate) fn allows(&self, host: &Nqn) -> bool {
        self.allow_any || self.allowed_hosts.contains(host)
    }

    fn place(&self, nsid: u32) -> Result<usize, usize> {
        self.namespaces.binary_search_by_key(&nsid, |namespace| namespace.nsid)
    }

    pub(crate) fn namespace(&self, nsid: u32) -> Option<&Namespace> {
        self.place(nsid).ok().map(|at| &self.namespaces[at])
    }

    pub(crate) fn namespace_mut(&mut self, nsid: u32) -> Option<&mut Namespace> {
        self.place(nsid).ok().map(|at| &mut self.namespaces[at])
    }

    /// Adds a namespace; false when its NSID is taken.
    pub(crate) fn add(&mut self, namespace: Namespace) -> bool {
        match self.place(namespace.nsid) {
            Ok(_) => false,
            Err(at) => {
                self.namespaces.insert(at, namespace);
                true
            }
        }
    }

    pub(crate) fn remove(&mut self, nsid: u32) -> Option<Namespace> {
        self.place(nsid).ok().map(|at| self.namespaces.remove(at))
    }
}
