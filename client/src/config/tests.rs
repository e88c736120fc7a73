use std::time::Duration;

use super::{ClientConfig, ServerAddress};
use crate::{Client, Error};

#[test]
fn addresses_are_read_and_written_alike() {
    for text in ["unix:/run/maru.sock", "tcp:pool-1:7000", "tcp:10.0.0.1:1", "tcp:[::1]:65535"] {
        let address: ServerAddress = text.parse().expect("an address");
        assert_eq!(address.to_string(), text);
    }
}

#[test]
fn what_is_no_address_is_refused_with_the_reason() {
    for text in
        ["", "/run/maru", "unix:", "tcp:", "tcp:host", "tcp::7000", "tcp:h:0", "tcp:h:70000"]
    {
        let error = text.parse::<ServerAddress>().expect_err("no address");
        assert!(error.to_string().contains(&format!("`{text}`")), "{error}");
    }
}

/// R1 and the bounds of every setting.
#[test]
fn settings_out_of_bounds_are_refused_by_name() {
    type Change = fn(&mut ClientConfig);
    let changes: [(&str, Change); 8] = [
        ("namespace", |config| config.namespace = String::new()),
        ("namespace", |config| config.namespace = "n".repeat(65)),
        ("node_name", |config| config.node_name = "n".repeat(65)),
        ("control_timeout", |config| config.control_timeout = Duration::ZERO),
        ("transfer_timeout", |config| config.transfer_timeout = Duration::MAX),
        ("retry_period", |config| config.retry_period = Duration::ZERO),
        ("requests_max", |config| config.requests_max = 0),
        ("requests_max", |config| config.requests_max = 65_537),
    ];
    for (name, change) in changes {
        let address = ServerAddress::Unix("/nonexistent".into());
        let mut config = ClientConfig::new(address, "test");
        change(&mut config);
        let error = Client::new(config).expect_err("out of bounds");
        assert!(matches!(error, Error::Config { setting, .. } if setting == name), "{error}");
    }
}
