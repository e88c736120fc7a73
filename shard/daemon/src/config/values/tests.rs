use super::*;

/// S2: sizes like `4G`, `500M`, `1048576`; lower case is as good.
#[test]
fn sizes() {
    let good = [
        ("4G", 4 << 30),
        ("4g", 4 << 30),
        ("4GiB", 4 << 30),
        ("500M", 500 << 20),
        ("16k", 16 << 10),
        ("2T", 2 << 40),
        ("1048576", 1_048_576),
        ("1", 1),
    ];
    for (text, bytes) in good {
        assert_eq!(text.parse(), Ok(Size(bytes)), "{text}");
    }
    for text in ["", "G", "-1", "1.5G", "4GB", "4 G", "1e9", "nan", "inf", "0x10", "ten"] {
        assert_eq!(text.parse::<Size>(), Err(ValueError::Size(text.to_owned())), "{text}");
    }
    for text in ["99999999999999999999", "99999999999T"] {
        assert_eq!(text.parse::<Size>(), Err(ValueError::SizeTooLarge(text.to_owned())));
    }
    assert_eq!("0G".parse::<Size>(), Err(ValueError::SizeZero));
}

#[test]
fn sizes_print_as_they_are_written() {
    for text in ["4G", "500M", "16K", "2T", "1000001"] {
        assert_eq!(text.parse::<Size>().unwrap().to_string(), text);
    }
}

/// R1: every duration is finite and above 0.
#[test]
fn durations() {
    let good = [("60s", 60_000_000), ("500ms", 500_000), ("7us", 7), ("2m", 120_000_000)];
    for (text, us) in good {
        assert_eq!(text.parse(), Ok(Span(Duration::from_micros(us))), "{text}");
    }
    for text in ["", "60", "s", "-1s", "1.5s", "nan", "inf", "infs", "60 s", "60S", "true"] {
        assert_eq!(text.parse::<Span>(), Err(ValueError::Duration(text.to_owned())), "{text}");
    }
    for text in ["99999999999999999999s", "18446744073709551615h", "9000h"] {
        assert_eq!(text.parse::<Span>(), Err(ValueError::DurationTooLong(text.to_owned())));
    }
    assert_eq!("0s".parse::<Span>(), Err(ValueError::DurationZero));
}

#[test]
fn addresses() {
    assert_eq!("none".parse(), Ok(TcpBind(None)));
    assert_eq!("127.0.0.1:0".parse(), Ok(TcpBind(Some(([127, 0, 0, 1], 0).into()))));
    for text in ["", "127.0.0.1", "localhost:1", "127.0.0.1:99999", ":1"] {
        assert_eq!(text.parse::<TcpBind>(), Err(ValueError::Tcp(text.to_owned())));
    }
    assert_eq!("none".parse(), Ok(UnixBind(None)));
    assert_eq!("/run/a".parse(), Ok(UnixBind(Some("/run/a".into()))));
    let long = format!("/{}", "a".repeat(107));
    for text in ["", "a", "./a", long.as_str()] {
        assert_eq!(text.parse::<UnixBind>(), Err(ValueError::Unix(text.to_owned())));
    }
}

#[test]
fn shard_counts() {
    assert_eq!("auto".parse(), Ok(Shards(None)));
    assert_eq!("16".parse(), Ok(Shards(Some(16))));
    for text in ["0", "-1", "1025", "many", ""] {
        assert_eq!(text.parse::<Shards>(), Err(ValueError::Shards(text.to_owned())));
    }
}
