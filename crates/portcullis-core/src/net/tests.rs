use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::ControlFlow;

use proptest::prelude::*;

use super::{Found, HostList, Position, Reach, hosts, is_network_command, may_hold_host, reach};

mod ends;

fn found(text: &str, is_host: bool) -> Vec<(String, Position)> {
    let mut all = Vec::new();
    let ended = hosts(text, is_host, &mut |found: &Found<'_>| {
        assert!(text.get(found.span.clone()).is_some(), "{text:?}");
        all.push((found.host.to_string(), found.position));
        ControlFlow::<()>::Continue(())
    });
    assert!(ended.is_continue());
    all
}

/// What a text reaches that is not public.
fn reached(text: &str, is_host: bool) -> Option<Reach> {
    hosts(
        text,
        is_host,
        &mut |found: &Found<'_>| match found.host.reach() {
            Some(Reach::LocalName) if found.position == Position::Loose => {
                ControlFlow::Continue(())
            }
            Some(reach) => ControlFlow::Break(reach),
            None => ControlFlow::Continue(()),
        },
    )
    .break_value()
}

const REFUSED: &[&str] = &[
    // Dotted decimal.
    "http://127.0.0.1/",
    "http://127.0.0.1:8080/admin",
    "https://10.0.0.1",
    "http://172.16.0.1/",
    "http://172.31.255.255/",
    "http://192.168.1.1/",
    "http://169.254.1.1/",
    "http://100.64.0.1/",
    "http://224.0.0.1/",
    "http://0.0.0.0/",
    "http://255.255.255.255/",
    "http://198.18.0.1/",
    // Clouds.
    "http://169.254.169.254/latest/meta-data/",
    "http://[fd00:ec2::254]/latest",
    "http://metadata.google.internal/computeMetadata/v1/",
    "http://metadata/computeMetadata/v1/",
    "http://100.100.100.200/latest/meta-data/",
    "http://168.63.129.16/machine",
    "http://192.0.0.192/opc/v1/",
    "http://169.254.170.2/v2/credentials",
    // Octal, hexadecimal, one number, short, mixed.
    "http://0177.0.0.1/",
    "http://0177.0000.0000.0001/",
    "http://010.0.0.1/",
    "http://0x7f.0x0.0x0.0x1/",
    "http://0x7f.1/",
    "http://0x7f000001/",
    "http://0X7F000001/",
    "http://2130706433/",
    "http://017700000001/",
    "http://127.1/",
    "http://127.0.1/",
    "http://10.1/",
    "http://0/",
    "http://0x0/",
    "http://0x7f.0.1/",
    "http://169.0xfea9fe/",
    "http://2852039166/",
    "http://0xa9fea9fe/",
    "http://0251.0376.0251.0376/",
    // Userinfo, fragments, and what clients disagree on.
    "http://example.com@127.0.0.1/",
    "http://example.com:80@127.1/",
    "http://a@b@127.1/",
    "http://127.0.0.1#@example.com",
    "http://127.1#@example.com",
    "http://example.com#@127.1/",
    "http://example.com\\@127.1/",
    "http://127.1\\@example.com/",
    "http:\\\\127.1\\",
    "http:/127.1/",
    "http:127.1",
    "http:////127.1/",
    "HTTP://127.1/",
    "http://12\n7.1/",
    "http://a'b@127.1/",
    "http://a$(@127.1/",
    "http://{a@127.1/?}",
    // Dots, encodings, look-alikes.
    "http://127.0.0.1./",
    "http://127.1../",
    "http://localhost./",
    "http://127%2e0%2e0%2e1/",
    "http://%31%32%37.1/",
    "http://%6c%6f%63%61%6c%68%6f%73%74/",
    "http://１２７.０.０.１/",
    "http://①②⑦.⓪.⓪.①/",
    "http://127。0。0。1/",
    "http://127．0．0．1/",
    "http://127｡1/",
    "http://𝟏𝟐𝟕.𝟏/",
    "http://¹²⁷.¹/",
    "http://ⓛⓞⓒⓐⓛⓗⓞⓢⓣ/",
    "http://ｌｏｃａｌｈｏｓｔ/",
    "http://local\u{ad}host/",
    "http://LOCALHOST/",
    // IPv6.
    "http://[::1]/",
    "http://[::]/",
    "http://[0:0:0:0:0:0:0:1]:8080/",
    "http://[::ffff:127.0.0.1]/",
    "http://[::ffff:7f00:1]/",
    "http://[::127.0.0.1]/",
    "http://[::ffff:0:10.0.0.1]/",
    "http://[64:ff9b::10.0.0.1]/",
    "http://[64:ff9b::7f00:1]/",
    "http://[64:ff9b:1::1]/",
    "http://[2002:7f00:1::]/",
    "http://[2002:c0a8:101::1]/",
    "http://[2001:0:cb00:7107::80ff:fffe]/",
    "http://[2001:0:a00:1::1]/",
    "http://[fe80::1%25eth0]/",
    "http://[fe80::1%eth0]/",
    "http://[fc00::1]/",
    "http://[fd12:3456::1]/",
    "http://[fec0::1]/",
    "http://[ff02::1]/",
    "http://[2001:db8::5efe:a00:1]/",
    // Names.
    "http://localhost:3000/",
    "http://app.localhost/",
    "http://printer.local/",
    "http://vault.corp.internal/",
    "http://127.0.0.1.nip.io/",
    "http://app.10.0.0.1.nip.io/",
    "http://10-0-0-1.sslip.io/",
    "http://www-192-168-0-1.sslip.io/",
    "http://7f000001.nip.io/",
    "http://--1.sslip.io/",
    "http://7f000001.cb007107.rbndr.us/",
    "http://localtest.me/",
    "http://a.b.lvh.me/",
    "http://kubernetes.default.svc/",
    "http://$X.corp.internal/",
    "http://local${z}host/",
    "http://${z}127.1/",
    "http://192.168.1.$i/",
    "http://localhost:$PORT/",
    "ssh a.example \"curl $(curl $(curl 127.1))\"",
    "X=$(id) curl 127.1",
    // Other places than a URL's.
    "ws://127.1/socket",
    "redis://:secret@10.1:6379/0",
    "jdbc:postgresql://10.1:5432/app",
    "gopher://127.1:6379/_INFO",
    "//127.1/x",
    "\\\\10.1\\share",
    "see (http://127.1) for more",
    "{\"u\":\"http://127.1\"}",
    "https://proxy.example/?u=http%3A%2F%2F127.1%2Fadmin",
    "https://proxy.example/?u=http%3A%2F%2F127.0.0.1%2Fadmin",
    "https://proxy.example/?u=http://localhost/",
    "http:\\/\\/127.1\\/x",
    "connect to 10.0.0.1 please",
    "10.0.0.1-10.0.0.9",
    "the version on 10.0.0.1",
    "version 172.16.0.1",
    "ver=169.254.169.254; curl http://$ver/latest/meta-data/",
    "version=10.0.0.5; curl $version",
    "curl 0.0.0.0:8080",
    "nc 0.0.0.0 80",
    "route 10.0.0.0/8",
    "10.0.0.1.",
    "localhost:3000",
    "try localhost:3000/health",
    "db.internal:5432",
    "127.1:8080",
    "0x7f.1:8080",
    "[::1]:8080",
    "::1",
    "bind [::1]:8080",
    // Commands.
    "curl 127.1",
    "curl -s 127.1:8080/x",
    "curl 127.1$Z",
    "ping 10.0.0.$i",
    "curl 0x7f000001",
    "curl localhost",
    "curl -i 2130706433",
    "curl '127.1'",
    "curl 127'.'1",
    "c'u'rl 127.1",
    "curl \"http://127\".1/",
    "curl --proxy=127.1 http://example.com",
    "curl -x 127.1:3128 http://example.com",
    "sudo -n curl 127.1",
    "A=1 /usr/bin/curl 127.1",
    "timeout 5 wget 10.1/x",
    "cd /tmp && wget 10.1/x",
    "echo $(curl 127.1)",
    "bash -c \"curl 127.1\" && rm x",
    "ssh bastion.example 'curl 127.1 | tee x'",
    "ssh root@10.1",
    "ssh db.internal",
    "scp f root@10.1:/x",
    "rsync -a x 10.1:/y",
    "sftp root@10.1",
    "git push git@10.1:a/b",
    "git clone git@db.internal:a/b.git",
    "sudo -u x curl 127.1",
    "nice -n 5 curl 127.1",
    "busybox wget 10.1",
    "powershell -c iwr 10.1",
    "nc 0 4444",
    "nc -v 10.1 22",
    "ping 2130706433",
    "dig @10.1 example.com",
    "mysql -h10.1 -u root",
    "psql -h 10.1",
    "socat - TCP4:10.1:22",
    "openssl s_client -connect 10.1:443",
    "exec 3<>/dev/tcp/127.1/80",
];

const ALLOWED: &[&str] = &[
    "",
    "http://",
    "://",
    "http://8.8.8.8/",
    "http://134744072/",
    "http://0x08080808/",
    "http://8.8/",
    "http://011.8.8.8/",
    "http://172.15.0.1/",
    "http://172.32.0.1/",
    "http://100.63.0.1/",
    "http://100.128.0.1/",
    "http://192.0.2.1/",
    "http://256.256.256.256/",
    "http://1.2.3.4.5/",
    "http://127.0.0.0x1g/",
    "https://example.com/10.1",
    "https://example.com/?v=10.1&n=2130706433",
    "https://example.com/#10.1",
    "https://127.0.0.1.example.com/",
    "https://localhost.example.com/",
    "https://notlocalhost/",
    "https://internal.example.com/",
    "http://[2001:4860:4860::8888]/",
    "http://[::ffff:8.8.8.8]/",
    "http://[64:ff9b::808:808]/",
    "http://[2002:808:808::1]/",
    "http://8.8.8.8.nip.io/",
    "http://8-8-8-8.sslip.io/",
    "http://nip.io/",
    "version 10.1",
    "10.1",
    "2130706433",
    "0x7f000001",
    "127.1",
    "count: 2130706433",
    "in 10.0.19041.1 and v10.0.0.1",
    "1.2.10.0.0.1",
    "mask 255.255.255.0",
    "::",
    "::/0",
    "0.0.0.0/0",
    "0.0.0.0:8080",
    "npm run dev -- --host 0.0.0.0",
    "docker run -p 0.0.0.0:8080:80 nginx",
    "Version=10.0.0.0, Culture=neutral",
    "<bindingRedirect oldVersion=\"0.0.0.0-10.0.0.0\" newVersion=\"10.0.0.0\"/>",
    "[assembly: AssemblyVersion(\"10.0.0.1\")]",
    "{\"version\": \"10.0.0.1\"}",
    "Chapter 10.1.2.3",
    "choco install x --version=10.0.0.1 -y",
    "version=10.0.0.1\nname=x",
    "255.255.255.255",
    "10:30:00",
    "ratio 10.1:5 or so",
    "x[::1]",
    "std::vec",
    "x.local$y::z",
    "http://$local/",
    "http://$HOST:80/x.local",
    "fetch(base).internal.name",
    "{x}.config.local",
    "run it on localhost",
    "com.example.internal",
    "import \"pkg/internal\"",
    "see config.local for details",
    "'settings.local'",
    "file.rs:127",
    "s3://bucket.internal/key",
    "file:///etc/hosts.local",
    "mail bob@corp.internal",
    "https://example.com?to=bob@corp.internal",
    "curl -m 10.5 https://example.com",
    "curl --max-time 0.5 -o a.local https://example.com",
    "curl -H 'X-Version: 10.1' https://example.com",
    "curl -d 10.1 https://example.com",
    "curl -fsSL https://example.com/a > out.local",
    "ping -i 0.2 -c 3 example.com",
    "nc -zv example.com 22",
    "scp notes.local user@example.com:/tmp",
    "echo 127.1",
    "python3 -c 'print(10.1)'",
    "Ping me at 10.1",
    "pip install foo==10.1",
    "git tag 10.1",
    "git show 10.1:README",
    "git commit -m fix:x.local --author=bob@corp.internal",
    "git config user.email bob@corp.internal",
    "sudo -u curl.local vim 10.1",
    "npm i left-pad@10.1",
];

#[test]
fn every_notation_of_what_is_not_public_is_refused() {
    let missed: Vec<_> = REFUSED
        .iter()
        .filter(|t| reached(t, false).is_none())
        .collect();
    assert!(missed.is_empty(), "{missed:#?}");
}

#[test]
fn public_hosts_and_what_is_no_host_are_allowed() {
    let hit: Vec<_> = ALLOWED
        .iter()
        .filter_map(|text| reached(text, false).map(|reach| (text, reach, found(text, false))))
        .collect();
    assert!(hit.is_empty(), "{hit:#?}");
}

#[test]
fn under_a_name_for_hosts_a_bare_host_counts() {
    for (text, expected) in [
        ("127.1", true),
        (" 127.1 ", true),
        ("2130706433", true),
        ("0x7f.1:80", true),
        ("localhost", true),
        ("user@10.1/path", true),
        ("db.internal", true),
        ("fe80::1%eth0", true),
        ("::ffff:10.0.0.1", true),
        ("metadata", true),
        ("0.0.0.0", true),
        ("0.0.0.0:80", true),
        ("::", true),
        ("0.0.0.0/0", false),
        ("::/0", false),
        ("１２７.1", true),
        ("example.com", false),
        ("8.8.8.8", false),
        ("134744072", false),
        ("3000", false),
        ("production", false),
        ("bob@corp.internal", false),
        ("10 Downing Street", false),
        ("10:30:00", false),
    ] {
        assert_eq!(reached(text, true).is_some(), expected, "{text:?}");
    }
}

#[test]
fn hosts_are_found_where_they_stand() {
    for (text, expected) in [
        (
            "https://User@Example.COM:443/x",
            vec![
                ("example.com", Position::Url),
                ("example.com", Position::Port),
            ],
        ),
        (
            "curl example.com/x",
            vec![
                ("example.com", Position::Argument),
                ("example.com", Position::Loose),
            ],
        ),
        (
            "HTTPSConnection('a.example')",
            vec![("a.example", Position::Loose)],
        ),
        ("H=a.example; x", vec![("a.example", Position::Loose)]),
        ("see 8.8.4.4.", vec![("8.8.4.4", Position::Quad)]),
        (
            "http://010.1.2.3",
            vec![
                ("8.1.2.3 or 10.1.2.3", Position::Url),
                ("8.1.2.3 or 10.1.2.3", Position::Quad),
            ],
        ),
        ("a.example:443", vec![("a.example", Position::Port)]),
    ] {
        let expected: Vec<_> = expected
            .into_iter()
            .map(|(h, p)| (h.to_owned(), p))
            .collect();
        assert_eq!(found(text, false), expected, "{text}");
    }
    let mut spans = Vec::new();
    let text = "go to https://user@127.1:80/x";
    let _ = hosts(text, false, &mut |found: &Found<'_>| {
        spans.push(&text[found.span.clone()]);
        ControlFlow::<()>::Continue(())
    });
    assert_eq!(spans, ["127.1"]);
}

#[test]
fn lists_take_hosts_suffixes_addresses_and_networks() {
    let mut list = HostList::default();
    for entry in [
        "a.example",
        "*.B.example",
        "10.0.0.0/8",
        "[::1]",
        "192.0.2.7",
        "fd00::/8",
    ] {
        list.insert(entry).unwrap();
    }
    for (host, expected) in [
        ("a.example", true),
        ("A.example.", true),
        ("x.a.example", false),
        ("b.example", true),
        ("x.y.b.example", true),
        ("xb.example", false),
        ("10.255.1.2", true),
        ("0xa.1", true),
        ("11.0.0.1", false),
        ("[::1]", true),
        ("[fd12::1]", true),
        ("[fe80::1]", false),
        ("192.0.2.7", true),
        ("192.0.2.8", false),
        // 8.0.0.1 to some.
        ("010.0.0.1", false),
    ] {
        let host = super::Host::parse(host).unwrap();
        assert_eq!(list.contains(&host), expected, "{host}");
    }
    for entry in [
        "",
        "*",
        "*.",
        "a b",
        "10.0.0.0/33",
        "x/8",
        "*.10.0.0.1",
        "a.*.example",
        "http://x",
    ] {
        assert!(list.insert(entry).is_err(), "{entry:?}");
    }
}

/// Every way to write an IPv4 address.
fn notations(address: Ipv4Addr) -> Vec<String> {
    let bits = u32::from(address);
    let [a, b, c, d] = address.octets();
    let low24 = bits & 0x00ff_ffff;
    let low16 = bits & 0xffff;
    let mapped = address.to_ipv6_mapped();
    let wide = |text: &str| -> String {
        let wide = |c: char| char::from_u32(u32::from(c) - 0x21 + 0xff01).unwrap();
        text.chars().map(wide).collect()
    };
    let percent = |text: &str| {
        let codes: Vec<String> = text.bytes().map(|b| format!("%{b:02x}")).collect();
        codes.concat()
    };
    let dotted = address.to_string();
    vec![
        dotted.clone(),
        format!("{dotted}."),
        format!("{bits}"),
        format!("{bits:#x}"),
        format!("0X{bits:X}"),
        format!("0{bits:o}"),
        format!("{a}.{low24}"),
        format!("{a}.{b}.{low16}"),
        format!("{a:#x}.{b:#x}.{c:#x}.{d:#x}"),
        format!("{a:#x}.{low24}"),
        format!("{a}.{b:#x}.{low16:#x}"),
        format!("0{a:o}.0{b:o}.0{c:o}.0{d:o}"),
        format!("000{a:o}.{b}.{c}.{d}"),
        wide(&dotted),
        dotted.replace('.', "。"),
        percent(&dotted),
        format!("[{mapped}]"),
        format!("[::ffff:{:x}:{:x}]", bits >> 16, low16),
        format!("[64:ff9b::{dotted}]"),
        format!("[2002:{:x}:{:x}::1]", bits >> 16, low16),
        format!(
            "[2001:0:cb00:7107::{:x}:{:x}]",
            !(bits >> 16) & 0xffff,
            !low16 & 0xffff
        ),
        format!("{dotted}.nip.io"),
        format!("{a}-{b}-{c}-{d}.sslip.io"),
        format!("{bits:08x}.nip.io"),
    ]
}

/// Where a host may stand in a text.
fn places(host: &str) -> Vec<String> {
    vec![
        format!("http://{host}/"),
        format!("see https://user:pass@{host}:8443/x?y#z for more"),
        format!("HTTP:\\\\{host}\\x"),
        format!("curl -s {host} -o out"),
    ]
}

/// An octal number means something else to a client that does not know octal.
fn is_private_in_decimal(notation: &str) -> bool {
    let mut octets = [0u8; 4];
    for (octet, part) in octets.iter_mut().zip(notation.split('.')) {
        match part.parse() {
            Ok(value) => *octet = value,
            Err(_) => return false,
        }
    }
    reach(IpAddr::from(octets)).is_some()
}

fn private_v4() -> impl Strategy<Value = Ipv4Addr> {
    prop_oneof![
        Just([10, 0, 0, 0]),
        Just([127, 0, 0, 0]),
        Just([172, 16, 0, 0]),
        Just([192, 168, 0, 0]),
        Just([169, 254, 0, 0]),
        Just([100, 64, 0, 0]),
        Just([224, 0, 0, 0]),
    ]
    .prop_flat_map(|network: [u8; 4]| {
        any::<u16>().prop_map(move |low| {
            let bits = u32::from(Ipv4Addr::from(network));
            Ipv4Addr::from(bits | u32::from(low))
        })
    })
}

proptest! {
    #[test]
    fn a_private_address_is_refused_in_every_notation(address in private_v4()) {
        for notation in notations(address) {
            for text in places(&notation) {
                prop_assert!(reached(&text, false).is_some(), "{text}");
            }
            prop_assert!(reached(&notation, true).is_some(), "{notation}");
        }
    }

    #[test]
    fn a_public_address_is_allowed_in_every_notation(bits in any::<u32>()) {
        let address = Ipv4Addr::from(bits);
        prop_assume!(reach(address.into()).is_none());
        for notation in notations(address) {
            if notation.starts_with('0') && is_private_in_decimal(&notation) {
                continue;
            }
            for text in places(&notation) {
                prop_assert_eq!(reached(&text, false), None, "{}", text);
            }
            prop_assert_eq!(reached(&notation, true), None, "{}", notation);
        }
    }

    #[test]
    fn any_text_has_hosts_or_none(text in any::<String>(), is_host: bool) {
        found(&text, is_host);
    }

    /// What is passed over at a glance has no host in it.
    #[test]
    fn a_glance_misses_no_host(
        text in prop_oneof![
            any::<String>(),
            " {0,2}(sudo |env |curl |ssh |ping6 |report |localhost|metadata|[a-z0-9,_-]{1,12}|[ -~]){0,6} {0,2}",
        ],
        is_host: bool,
    ) {
        if !may_hold_host(&text, is_host) {
            prop_assert_eq!(found(&text, is_host), vec![]);
            prop_assert!(!is_host || !is_network_command(&text));
        }
    }

    #[test]
    fn any_pieces_of_hosts_have_hosts_or_none(
        pieces in prop::collection::vec(prop::sample::select(PIECES), 0..24),
        is_host: bool,
    ) {
        found(&pieces.concat(), is_host);
    }

    #[test]
    fn what_an_ipv6_address_carries_counts(bits in any::<u32>()) {
        let v4 = Ipv4Addr::from(bits);
        let v6: Ipv6Addr = v4.to_ipv6_mapped();
        prop_assert_eq!(reach(v6.into()), reach(v4.into()));
    }
}

const PIECES: &[&str] = &[
    "$",
    "{",
    "}",
    "${",
    "+",
    "http",
    "https",
    ":",
    "/",
    "//",
    "\\",
    "@",
    "#",
    "?",
    "[",
    "]",
    ".",
    "。",
    "%",
    "%3A%2F%2F",
    "%2e",
    "0x",
    "7f",
    "127",
    "1",
    "0",
    "::",
    "ffff",
    "localhost",
    "nip.io",
    "-",
    "_",
    " ",
    "\n",
    "\t",
    "'",
    "\"",
    "`",
    "$(",
    ")",
    "|",
    ";",
    "&",
    ">",
    "<",
    "curl",
    "ssh",
    "-m",
    "sudo",
    "=",
    "é",
    "漢",
    "①",
    "𝟏",
    "\u{ad}",
    "/dev/tcp/",
    "a.example",
    "tcp4:",
];
