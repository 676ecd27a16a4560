use super::outline::Outline;
use super::pattern::Haystack;
use super::*;
use proptest::prelude::*;
use proptest::sample::select;
use regex_syntax::hir::Hir;

fn spec(regex: &str, ignore_case: bool) -> PatternSpec<'_> {
    PatternSpec {
        regex,
        ignore_case,
        ..PatternSpec::default()
    }
}

fn scanner(patterns: &[(&str, bool)]) -> (Scanner, Vec<PatternId>) {
    let mut builder = ScannerBuilder::default();
    let ids = patterns
        .iter()
        .map(|(regex, ci)| {
            builder
                .add(&spec(regex, *ci), &EventSet::standard())
                .unwrap()
        })
        .collect();
    (builder.build(), ids)
}

const PATTERNS: &[(&str, bool)] = &[
    (r"ignore\s+(all\s+)?previous\s+instructions", true),
    (r"\bDAN\b.*mode", true),
    (r"(run|execute)\s+(as\s+)?(root|admin|sudo)", true),
    (r"sk-[a-zA-Z0-9]{20,}", false),
    (r"AKIA[0-9A-Z]{16}", false),
    (r"пароль", true),
    (r"\d{4}-\d{4}", false),
    (r"(foo|ba[rz])+qux", false),
];

/// What a pattern finds if nobody has looked at the text before, compiled for ASCII or for any text.
fn all_matches(pattern: &Pattern, text: &str, ascii: bool) -> Vec<Found> {
    let haystack = Haystack {
        text,
        ascii,
        max_len: None,
    };
    let mut found = Vec::new();
    let all = std::iter::once(0..text.len());
    pattern.search(&haystack, ascii, all, &mut 0, |one| {
        found.push(one);
        true
    });
    found
}

/// A pattern is compiled a second time for text that is all ASCII.
#[test]
fn ascii_text_is_searched_as_any_other() {
    let families = crate::detectors::all().map(|(kind, family)| (kind, family.unwrap()));
    let mut compared = 0;
    for (kind, entry) in families.flat_map(|(kind, family)| {
        let entries = family.entries.into_iter();
        entries.map(move |entry| (kind, entry))
    }) {
        let pattern = Pattern::new(&entry.pattern.spec(kind)).unwrap();
        let examples = entry.matches.iter().chain(&entry.passes);
        for text in examples.filter(|text| text.is_ascii()) {
            let [one, other] = [true, false].map(|ascii| all_matches(&pattern, text, ascii));
            assert_eq!(one, other, "{}: {text:?}", entry.id);
            compared += usize::from(!one.is_empty());
        }
    }
    assert!(compared > 1000, "{compared}");
}

/// What takes long to compile, and much memory, is not compiled for a text that it cannot match.
#[test]
fn beyond_ascii_most_patterns_never_need_more_than_a_sieve() {
    let spec = PatternSpec {
        built_in: true,
        ..spec(r"\bsesame\b[^.]{0,60}\bopen(?:s|ed)?\b", true)
    };
    let mut builder = ScannerBuilder::default();
    let id = builder.add(&spec, &EventSet::standard()).unwrap();
    let scanner = builder.build();
    for (text, announced) in [
        ("Sésame, sesame – offen", false),
        ("„Sesame“: it was opéned", false),
        ("„Sesame“, she said, and it opened", true),
    ] {
        let candidates = scanner.scan(text, &EventType::LlmBefore);
        assert_eq!(candidates.contains(id), announced, "{text}");
        assert_eq!(scanner.finds(id, text, &candidates), announced, "{text}");
        assert_eq!(scanner.patterns[0].is_compiled(), announced, "{text}");
    }
}

#[test]
fn an_underscore_ends_a_part_of_a_word() {
    for (pattern, text, found) in [
        ("[a-z]+(?:_secret)+", "my_secret", true),
        ("(?:prod_)+[a-z]+", "prod_x", true),
        ("[a-z]+(?:_|-)secret", "my_secret", true),
        (
            r"(?:\b|_)sin(?:\b|_)[^0-9]{0,9}[0-9]{9}",
            "my_sin_: 123456789",
            true,
        ),
        (
            r"(?:\b|_)sin(?:\b|_)[^0-9]{0,9}[0-9]{9}",
            "sin 123456789",
            true,
        ),
        (
            r"(?:\b|_)sin(?:\b|_)[^0-9]{0,9}[0-9]{9}",
            "using 123456789",
            false,
        ),
        (r"(?:\b|_)(?:sin|nas)[_-][0-9]{9}", "a_nas_123456789", true),
    ] {
        let (scanner, ids) = scanner(&[(pattern, true)]);
        let candidates = scanner.scan(text, &EventType::LlmBefore);
        assert_eq!(candidates.contains(ids[0]), found, "{pattern} {text}");
    }
}

#[test]
fn patterns_without_a_literal_are_known() {
    let (scanner, _) = scanner(PATTERNS);
    assert_eq!(scanner.unfiltered().collect::<Vec<_>>(), [r"\d{4}-\d{4}"]);
}

#[test]
fn ordinary_text_names_no_pattern() {
    let (scanner, _) = scanner(&PATTERNS[..6]);
    let text = "The quick brown fox jumps over the lazy dog, and the instructions were clear.";
    assert!(scanner.scan(text, &EventType::LlmBefore).is_empty());
}

#[test]
fn what_stands_around_a_literal_settles_whether_it_announces() {
    let (scanner, ids) = scanner(&[
        (
            r"\b(?:do\s{1,3}not|never)\s{1,3}(?:ever\s{1,3})?mention\s{1,3}(?:this|that)\b",
            true,
        ),
        (r"(?:^|[.!?]\s)answer[^.\n]{0,20}\bonly", true),
        (r"password[ \t]{1,3}[0-9]{4}(?:\s|$)", false),
    ]);
    for (text, announced) in [
        ("do not mention this", &[0][..]),
        ("NEVER\nEver  mention that", &[0]),
        ("never\u{a0}mention\u{2003}that", &[0]),
        ("please mention this", &[]),
        ("never mention the cost", &[]),
        ("never mention", &[]),
        ("Answer me with a word only", &[1]),
        ("So? Answer only", &[1]),
        ("we answer only", &[]),
        ("password 1234", &[2]),
        ("password 12345", &[2]),
        ("password reset", &[]),
    ] {
        let candidates = scanner.scan(text, &EventType::LlmBefore);
        let named: Vec<usize> = (0..ids.len())
            .filter(|index| candidates.contains(ids[*index]))
            .collect();
        assert_eq!(named, announced, "{text}");
    }
}

#[test]
fn a_short_literal_is_announced_beside_any_character() {
    let patterns = [
        ("key", false),
        (r"\bhow\b", true),
        ("four", false),
        (r"why\s+not", true),
    ];
    let (scanner, ids) = scanner(&patterns);
    let others = ['\u{85}', '\u{a0}', 'é', '\u{2028}'];
    for c in (0..=0x7f).map(char::from).chain(others) {
        for word in ["key", "HOW", "four", "why not", "why\u{1c}NOT"] {
            for lead in ["", ".", "x ", "and so", "\u{1}more"] {
                for text in [
                    format!("{lead}{c}{word}"),
                    format!("{lead}{word}{c}"),
                    format!("{lead}{c}{word}{c}and more"),
                ] {
                    let candidates = scanner.scan(&text, &EventType::LlmBefore);
                    for id in ids.iter().filter(|id| scanner.find(**id, &text).is_some()) {
                        assert!(candidates.contains(*id), "{id:?} in {text:?}");
                    }
                }
            }
        }
    }
}

#[test]
fn a_pattern_is_only_named_for_its_events() {
    let mut builder = ScannerBuilder::default();
    let events = EventSet::from_iter([EventType::LlmBefore, EventType::from("mine")]);
    let id = builder.add(&spec("jailbreak", true), &events).unwrap();
    let scanner = builder.build();
    for (event_type, expected) in [
        ("llm_before", true),
        ("mine", true),
        ("tool_call_result", false),
    ] {
        let candidates = scanner.scan("a JailBreak.", &EventType::from(event_type));
        assert_eq!(candidates.contains(id), expected, "{event_type}");
    }
}

#[test]
fn the_same_pattern_is_kept_once() {
    let mut builder = ScannerBuilder::default();
    let a = builder
        .add(
            &spec("abcd", true),
            &EventSet::from_iter([EventType::LlmBefore]),
        )
        .unwrap();
    let b = builder
        .add(
            &spec("abcd", true),
            &EventSet::from_iter([EventType::ToolCallStart]),
        )
        .unwrap();
    let c = builder
        .add(&spec("abcd", false), &EventSet::standard())
        .unwrap();
    assert_eq!(a, b);
    assert_ne!(a, c);
}

#[test]
fn python_whitespace_separates_words() {
    let (scanner, ids) = scanner(&[(r"ignore\s+previous", true), (r"a[\s,]+bcde", false)]);
    for (id, text) in [(ids[0], "ignore\u{1c}previous"), (ids[1], "a\u{1f},bcde")] {
        assert!(scanner.scan(text, &EventType::LlmBefore).contains(id));
        assert_eq!(scanner.find(id, text), Some(0..text.len()));
    }
}

#[test]
fn classes_and_case_are_pythons() {
    for (regex, ignore_case, text, expected) in [
        (r"^\w+$", false, "aé漢_9½²", true),
        (r"^\w+$", false, "e\u{301}", false),
        (r"^\W+$", false, "\u{301} -", true),
        (r"^\S+$", false, "a\u{1c}b", false),
        (r"^[\W\d]+$", false, "1 - 2", true),
        (r"^[^\s,]+$", false, "a\u{1f}b", false),
        (r"^[\w-]+$", false, "½-a", true),
        ("jailbreak", true, "JA\u{130}LBREAK", true),
        ("jailbreak", true, "ja\u{131}lbreak", true),
        ("jailbreak", false, "ja\u{131}lbreak", false),
        ("^[a-z]{3}$", true, "\u{130}\u{131}\u{212a}", true),
        ("(?-i:i)nside", true, "\u{131}nside", false),
        ("(?-i:i)nside", true, "iNSIDE", true),
    ] {
        let (scanner, ids) = scanner(&[(regex, ignore_case)]);
        let announced = scanner.scan(text, &EventType::LlmBefore).contains(ids[0]);
        let found = scanner.find(ids[0], text).is_some();
        assert_eq!(found, expected, "{regex} {text:?}");
        assert!(announced || !found, "{regex} {text:?}");
    }
}

/// What stands around a literal is written down, and must be the same when it is read.
#[test]
fn outlines_are_read_as_they_were_written() {
    let same = |spec: &PatternSpec<'_>, name: &str| {
        let hir = dialect::parse(spec).unwrap();
        let places = literals::required(&hir).map(|factor| factor.places);
        let places = places.into_iter().flatten();
        let outlines = places.flat_map(|place| place.around.outlines());
        let compare = |outline: Hir| {
            let read = Outline::of(&outline).unwrap().read();
            assert_eq!(read, outline, "{name}");
        };
        outlines.map(compare).count()
    };
    let mut compared = 0;
    for (kind, family) in crate::detectors::all() {
        for entry in family.unwrap().entries {
            for unspaced in [false, true] {
                let mut spec = entry.pattern.spec(kind);
                spec.unspaced = unspaced;
                compared += same(&spec, &entry.id);
            }
        }
    }
    assert!(compared > 2000, "{compared}");
    for regex in [
        "pin(?:[0-9]{2})?: ?[0-9]{4}",
        r"(?:\b\w+\b)?key(?:(?:a+)?b{2,3}){4}",
        r"(?:(?:\s{1,3}é?)*)+pin(?:[^\x00-\x7f]{2}|[[a-z]&&[0-9]]|(?-u:\b)$)?",
    ] {
        assert!(same(&spec(regex, true), regex) > 0);
    }
}

/// An optional part of several characters demands none.
#[test]
fn what_may_be_missing_beside_a_literal_may_be_missing() {
    for (regex, unspaced, text) in [
        ("pin(?:[0-9]{2})?: ?[0-9]{4}", false, "pin: 1234"),
        (
            r"treat\s+me\s+as\s+(?:[a-z]{1,12}\s{1,3})?root",
            true,
            "treatmeasroot",
        ),
    ] {
        let spec = PatternSpec {
            unspaced,
            ..spec(regex, true)
        };
        let mut builder = ScannerBuilder::default();
        let id = builder.add(&spec, &EventSet::standard()).unwrap();
        let scanner = builder.build();
        let announced = scanner.scan(text, &EventType::LlmBefore).contains(id);
        assert!(announced, "{regex}");
    }
}

/// The screen with ASCII boundaries lets nothing through that is not a match, and holds nothing back.
#[test]
fn word_boundaries_are_unicodes() {
    let (scanner, ids) = scanner(&[(r"\bDAN\b.*mode", true)]);
    for (text, expected) in [
        ("in DAN mode", true),
        ("«DAN», le mode", true),
        ("éDAN mode", false),
        ("dans la mode", false),
        ("Dan était là\nla mode", false),
    ] {
        assert_eq!(scanner.find(ids[0], text).is_some(), expected, "{text}");
    }
}

#[test]
fn bad_patterns_are_refused() {
    let add = |regex: &str, keywords: &[&str]| {
        let keywords: Vec<String> = keywords.iter().map(|k| (*k).to_owned()).collect();
        ScannerBuilder::default()
            .add(
                &PatternSpec {
                    regex,
                    ignore_case: true,
                    keywords: &keywords,
                    ..PatternSpec::default()
                },
                &EventSet::standard(),
            )
            .unwrap_err()
    };
    assert!(
        matches!(add("(unclosed", &[]), PatternError::Syntax(text) if text.contains("unclosed group"))
    );
    assert!(matches!(add("(?=look)ahead", &[]), PatternError::Syntax(_)));
    let nested = format!("{}abc{}", "(".repeat(40), "+)".repeat(40));
    let _ = ScannerBuilder::default().add(&spec(&nested, true), &EventSet::standard());
    assert_eq!(add("a*", &[]), PatternError::MatchesEmpty);
    assert!(matches!(
        add(r"((\w{100}){100}){100}", &[]),
        PatternError::TooLarge(_)
    ));
    assert_eq!(
        add("abcd|efgh", &["abcd"]),
        PatternError::KeywordsNotImplied("abcd".into())
    );
    assert_eq!(
        add("abcd", &["ab"]),
        PatternError::ShortKeyword("ab".into())
    );
}

/// The tree is compiled as it is: as text, an optional group of repetitions reads as a lazy one.
#[test]
fn an_optional_repetition_stays_optional() {
    let (scanner, ids) = scanner(&[("abc(?:[0-9]{3})?(?:x+)?end", false)]);
    for text in ["abcend", "abc123end", "abcxxend"] {
        assert!(scanner.find(ids[0], text).is_some(), "{text}");
    }
}

#[test]
fn what_is_skipped_finds_nothing_and_announces_nothing() {
    let mut builder = ScannerBuilder::default();
    let spec = PatternSpec {
        requires: Some(Requirement::Long),
        ..spec(
            "(?P<skip>BEGIN[a-z0-9 -]{0,400}?END)|(?P<value>[a-z0-9]{40})|(?P<skip_rest>[a-z0-9]{3,900})",
            false,
        )
    };
    let id = builder.add(&spec, &EventSet::standard()).unwrap();
    let scanner = builder.build();
    let (line, other) = ("a1b2c3d4e5".repeat(4), "a1b2c3d4e5".repeat(3) + "-rest");
    for (text, announced, found) in [
        (line.clone(), true, true),
        (format!("BEGIN {line} END"), true, false),
        (format!("BEGIN {line} END {line}"), true, true),
        (format!("BEGIN {other} END"), false, false),
    ] {
        let candidates = scanner.scan(&text, &EventType::LlmBefore);
        assert_eq!(candidates.contains(id), announced, "{text}");
        let mut values = Vec::new();
        scanner.find_all(id, &text, &candidates, 0..text.len(), |value| {
            values.push(value);
        });
        let at_end = text.len() - line.len().min(text.len())..text.len();
        assert_eq!(values, if found { vec![at_end] } else { vec![] }, "{text}");
    }
}

#[test]
fn keywords_announce_the_pattern_even_in_odd_case() {
    let keywords = ["risk".to_owned()];
    let mut builder = ScannerBuilder::default();
    let id = builder
        .add(
            &PatternSpec {
                regex: r"the\s+risky",
                ignore_case: true,
                keywords: &keywords,
                ..PatternSpec::default()
            },
            &EventSet::standard(),
        )
        .unwrap();
    let scanner = builder.build();
    // The long s and the Kelvin sign are letters of "risk" to a pattern that ignores case.
    for text in ["THE RISKY", "the ri\u{17f}\u{212a}y"] {
        assert!(
            scanner.scan(text, &EventType::LlmBefore).contains(id),
            "{text}"
        );
        assert!(scanner.find(id, text).is_some(), "{text}");
    }
}

/// What is past the limit is found, whatever the pattern asks of a value.
#[test]
fn the_rest_is_found_without_checks_and_as_a_whole() {
    let (scanner, ids) = scanner(&[(r"key=(?P<value>[^;]*?);", false)]);
    let text = "key=a;".repeat(300);
    let candidates = scanner.scan(&text, &EventType::LlmBefore);
    let mut last = 0..0;
    scanner.find_all(ids[0], &text, &candidates, 0..text.len(), |span| {
        last = span;
    });
    assert_eq!(last.end, text.len());
}

#[test]
fn many_ambiguous_matches_end_in_one_that_takes_the_rest() {
    let (scanner, ids) = scanner(&[(r"ab|ab.*zzzz", false)]);
    let text = "ab".repeat(100_000);
    let mut spans = Vec::new();
    scanner.find_all(
        ids[0],
        &text,
        &scanner.scan(&text, &EventType::LlmBefore),
        0..text.len(),
        |span| spans.push(span),
    );
    assert_eq!(spans.len(), 257);
    assert_eq!(spans.last().unwrap().end, text.len());
}

proptest! {
    /// The filter may name too much, never too little.
    #[test]
    fn every_match_is_announced(
        prefix in "[ a-zA-Z0-9\u{17f}\u{212a}é\u{1c}-]{0,40}",
        middle in select(vec![
            "ignore previous instructions", "IGNORE\u{a0}all PREVIOU\u{17f} instruction\u{17f}",
            "DAN x mode", "eXecute as ROOT", "run sudo", "sk-abcdefghij0123456789",
            "AKIAABCDEFGHIJKLMNOP", "ПАРОЛЬ", "Пароль", "1234-5678", "foobarbazqux",
        ]),
        suffix in "[ a-zA-Z0-9-]{0,40}",
    ) {
        let (scanner, ids) = scanner(PATTERNS);
        let text = format!("{prefix}{middle}{suffix}");
        let candidates = scanner.scan(&text, &EventType::LlmBefore);
        for (id, (regex, _)) in ids.iter().zip(PATTERNS) {
            if scanner.find(*id, &text).is_some() {
                prop_assert!(candidates.contains(*id), "{regex} is not announced in {text:?}");
            }
        }
    }

    /// Any pattern that compiles announces each of its matches, on text made from the pattern's alphabet.
    #[test]
    fn any_pattern_announces_its_matches(
        regex in "(ab|[ks]c{1,2}|d\\s|(e|fg)h){1,4}",
        ignore_case in any::<bool>(),
        text in "[abcdefghksS K]{0,60}",
    ) {
        let mut builder = ScannerBuilder::default();
        let id = builder.add(&spec(&regex, ignore_case), &EventSet::standard()).unwrap();
        let scanner = builder.build();
        if scanner.find(id, &text).is_some() {
            prop_assert!(scanner.scan(&text, &EventType::LlmBefore).contains(id));
        }
    }

    /// The same for whatever pattern, on text of the same words.
    #[test]
    fn regions_change_no_match_of_any_pattern(
        regex in any_regex(),
        ignore_case in any::<bool>(),
        words in prop::collection::vec(select(WORDS.to_vec()), 0..24),
    ) {
        let mut builder = ScannerBuilder::default();
        let added = builder.add(&spec(&regex, ignore_case), &EventSet::standard());
        if matches!(added, Err(PatternError::MatchesEmpty)) {
            return Ok(());
        }
        let id = added.unwrap();
        let scanner = builder.build();
        let text = words.concat();
        let candidates = scanner.scan(&text, &EventType::LlmBefore);
        let mut near = Vec::new();
        scanner.each_match(id, &text, &candidates, 0..text.len(), |one| near.push(one));
        let all = all_matches(&scanner.patterns[0], &text, false);
        prop_assert_eq!(near, all, "{} in {:?}", regex, text);
    }

    /// Looking only where a pattern is announced finds what looking everywhere finds.
    #[test]
    fn regions_change_no_match(
        patterns in prop::collection::vec(select(FACTORED.to_vec()), 1..4),
        pieces in prop::collection::vec((select(FRAGMENTS.to_vec()), 0usize..1500), 0..10),
    ) {
        let patterns: Vec<(&str, bool)> = patterns;
        let (scanner, ids) = scanner(&patterns);
        let mut text = String::new();
        for (piece, padding) in pieces {
            text.push_str(piece);
            text.push_str(&"z ".repeat(padding / 2 * (padding % 3)));
        }
        let candidates = scanner.scan(&text, &EventType::LlmBefore);
        for id in ids {
            let mut near = Vec::new();
            scanner.each_match(id, &text, &candidates, 0..text.len(), |one| near.push(one));
            let all = all_matches(&scanner.patterns[usize::from(id.0)], &text, false);
            prop_assert_eq!(near, all, "{} in {:?}", scanner.patterns[usize::from(id.0)].source(), text);
        }
    }
}

const WORDS: &[&str] = &[
    "the",
    "not",
    "NOT",
    "task",
    "TaſK",
    "pass",
    "word",
    "é",
    "été",
    " ",
    "  ",
    "\n",
    "\u{a0}",
    ".",
    "_",
    "1234567",
    "ask the",
    "not the task",
    "password",
];

/// Patterns of everyday words, blanks, gaps and edges.
fn any_regex() -> impl Strategy<Value = String> {
    let piece = select(vec![
        "the",
        "not",
        "task",
        "pass",
        "word",
        "été",
        r"\s",
        r"\s{1,3}",
        r"\s+",
        r"\b",
        "^",
        "$",
        "[^.]{0,9}",
        ".*",
        r"\w+",
        "[0-9]{7}",
        "[st]k?",
        " ?",
    ]);
    let leaf = prop::collection::vec(piece, 1..4).prop_map(|pieces| pieces.concat());
    leaf.prop_recursive(3, 12, 3, |inner| {
        let each = prop::collection::vec(inner.clone(), 2..4);
        prop_oneof![
            each.clone().prop_map(|parts| parts.concat()),
            each.prop_map(|parts| format!("(?:{})", parts.join("|"))),
            (inner, select(vec!["?", "*", "{1,2}", "{2}", "{2,5}", "+?"]))
                .prop_map(|(part, times)| format!("(?:{part}){times}")),
        ]
    })
}

/// Patterns with several factors, edges of words, and matches of every length.
const FACTORED: &[(&str, bool)] = &[
    (
        r"\b(?:ignore|forget)\s{1,3}(?:all\s)?(?:previous|prior)\s{1,3}rules?\b",
        true,
    ),
    (r"\byou\b[^.]{0,40}\b(?:must|shall)\b", true),
    (r"(?:abc|Abd)[-.](?:xyz|q{3})", false),
    (r"(?-u:\b)KEY[0-9]{4}(?-u:\b)", false),
    (r"start[^!]{0,900}end", false),
    (r"start[^!]{0,3000}end", false),
    (r"open.*shut", false),
    (r"must\s+(?:\w+\s+)?rule", true),
    (r"que[^!]*(?:ab){2,}", true),
    (r"(?:que|qué)\s(?:hora|dia)", true),
    (r"open[ \t]{1,3}(?:shut|end)(?:er ){1,2}now", false),
    (
        r"(?:^|\n|\. )(?:rule|must)s?(?:ab){2,4}[cd]+(?:$|\n)",
        false,
    ),
    (r"[é-ü]bar(?:foo)?", true),
];

const FRAGMENTS: &[&str] = &[
    "ignore",
    "FORGET ",
    " previous ",
    "prior",
    " rules",
    "rule",
    "you",
    "layout",
    " must ",
    "shall",
    "abc-xyz",
    "Abd.qqq",
    "ABC-XYZ",
    "KEY1234",
    "xKEY1234",
    "KEY12345",
    "start",
    "end",
    "!",
    "open",
    "shut",
    "\n",
    "open shuter now",
    "open\t ender er now",
    "er ",
    "now",
    "ruleababc",
    "mustsabababdcd\n",
    ". ",
    "que hora",
    "QUÉ DIA",
    "que",
    "ébar",
    "ÜBARfoo",
    " ",
    ".",
    "_",
];
