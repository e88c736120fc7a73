//! The first use of each region, as a client would use it: a page written, and read back.

use std::io;

use maru_region::Region;
use maru_transfer::shm::{CopyError, Map, MapError, MappedSpec, Run};

/// Bytes that are written and read back at either end of a region.
const PROBE: &[u8; 16] = b"maru-shard probe";

/// Why a region is of no use to clients.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum ProbeError {
    #[error("the descriptor of region {region} cannot be passed on: {source}")]
    Descriptor { region: u32, source: io::Error },
    #[error("{0}")]
    Map(#[from] MapError),
    #[error("{0}")]
    Copy(#[from] CopyError),
    #[error("page {page_index} of region {region} gives back other bytes than were written to it")]
    OtherBytes { region: u32, page_index: u32 },
}

/// Maps the regions as a client does, writes to their first and last pages and reads them back.
///
/// Leaves the pages as they were.
pub(crate) fn probe(regions: &[Region], page_bytes: u64) -> Result<(), ProbeError> {
    let specs = regions.iter().map(spec).collect::<Result<_, _>>()?;
    let map = Map::new(specs, page_bytes)?;
    for region in regions {
        let number = region.spec().region;
        let last = u32::try_from(region.bytes() / page_bytes).unwrap_or(u32::MAX).saturating_sub(1);
        for page_index in [0, last] {
            let runs = [Run { region: number, page_index, page_count: 1 }];
            let (mut before, mut after) = ([0; PROBE.len()], [0; PROBE.len()]);
            map.read_at(&runs, 0, &mut before)?;
            map.write_at(&runs, 0, PROBE)?;
            map.read_at(&runs, 0, &mut after)?;
            if after != *PROBE {
                return Err(ProbeError::OtherBytes { region: number, page_index });
            }
            map.write_at(&runs, 0, &before)?;
        }
    }
    Ok(())
}

fn spec(region: &Region) -> Result<MappedSpec, ProbeError> {
    let (number, bytes) = (region.spec().region, region.bytes());
    let fd = region.descriptor().try_clone_to_owned();
    let fd = fd.map_err(|source| ProbeError::Descriptor { region: number, source })?;
    Ok(MappedSpec { region: number, bytes, fd })
}

#[cfg(test)]
mod tests {
    use maru_region::{RegionKind, RegionSpec};

    use super::*;

    fn region(number: u32, bytes: u64) -> Region {
        let name = "maru-test".to_owned();
        let kind = RegionKind::Memfd;
        Region::create(&RegionSpec { region: number, kind, bytes, node: None, name }).unwrap()
    }

    /// S1: what clients cannot use ends the start with the reason.
    #[test]
    fn what_clients_cannot_use_is_found() {
        probe(&[region(0, 1 << 20), region(1, 4096)], 4096).unwrap();
        let twice = probe(&[region(3, 4096), region(3, 4096)], 4096).unwrap_err();
        assert_eq!(twice.to_string(), "region 3 comes twice");
        let no_page = probe(&[region(2, 4096)], 8192).unwrap_err();
        assert!(matches!(no_page, ProbeError::Copy(_)), "{no_page}");
    }

    /// The probe leaves no byte behind.
    #[test]
    fn the_pages_are_as_they_were() {
        let regions = [region(0, 8192)];
        probe(&regions, 4096).unwrap();
        let map = Map::new(vec![spec(&regions[0]).unwrap()], 4096).unwrap();
        let mut bytes = [1; 8192];
        map.read_at(&[Run { region: 0, page_index: 0, page_count: 2 }], 0, &mut bytes).unwrap();
        assert_eq!(bytes, [0; 8192]);
    }
}
