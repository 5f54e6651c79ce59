//! Parsing of Structured Fields (RFC 9651), as far as an `Idempotency-Key` needs it.

/// Parses an Item (RFC 9651 §4.2.3) that is a String, and returns the string. Parameters must be
/// well formed and are skipped. Returns `None` for anything else.
pub(super) fn parse_string_item(value: &[u8]) -> Option<String> {
    let mut parser = Parser(value);
    let string = parser.string()?;
    while parser.skip(b';') {
        parser.take_while(|byte| byte == b' ');
        parser.parameter()?;
    }
    parser.0.is_empty().then_some(string)
}

/// The rest of the input.
struct Parser<'a>(&'a [u8]);

impl<'a> Parser<'a> {
    fn peek(&self) -> Option<u8> {
        self.0.first().copied()
    }

    fn next(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn skip(&mut self, byte: u8) -> bool {
        self.0.strip_prefix(&[byte]).map(|rest| self.0 = rest).is_some()
    }

    fn take_while(&mut self, accept: impl Fn(u8) -> bool) -> &'a [u8] {
        let end = self.0.iter().position(|byte| !accept(*byte)).unwrap_or(self.0.len());
        let (taken, rest) = self.0.split_at_checked(end).unwrap_or((self.0, &[]));
        self.0 = rest;
        taken
    }

    /// RFC 9651 §4.2.5.
    fn string(&mut self) -> Option<String> {
        let mut string = String::new();
        self.skip(b'"').then_some(())?;
        loop {
            match self.next()? {
                b'"' => return Some(string),
                b'\\' => match self.next()? {
                    escaped @ (b'"' | b'\\') => string.push(escaped.into()),
                    _ => return None,
                },
                byte @ b' '..=b'~' => string.push(byte.into()),
                _ => return None,
            }
        }
    }

    /// One parameter after its `;` (RFC 9651 §4.2.3.2): a name, and a value unless it is `true`.
    fn parameter(&mut self) -> Option<()> {
        matches!(self.peek()?, b'a'..=b'z' | b'*').then_some(())?;
        self.take_while(
            |byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' | b'.' | b'*'),
        );
        if self.skip(b'=') { self.bare_item() } else { Some(()) }
    }

    /// RFC 9651 §4.2.3.1.
    fn bare_item(&mut self) -> Option<()> {
        match self.peek()? {
            b'"' => self.string().map(drop),
            b'-' | b'0'..=b'9' => self.number().map(drop),
            b'@' => {
                self.next();
                (self.number()? == Number::Integer).then_some(())
            }
            b'?' => {
                self.next();
                matches!(self.next()?, b'0' | b'1').then_some(())
            }
            b':' => self.byte_sequence(),
            b'%' => self.display_string(),
            b'*' | b'A'..=b'Z' | b'a'..=b'z' => {
                let punctuation = b"!#$%&'*+-.^_`|~:/";
                self.take_while(|byte| byte.is_ascii_alphanumeric() || punctuation.contains(&byte));
                Some(())
            }
            _ => None,
        }
    }

    /// RFC 9651 §4.2.4.
    fn number(&mut self) -> Option<Number> {
        self.skip(b'-');
        let whole = self.take_while(|byte| byte.is_ascii_digit()).len();
        if !self.skip(b'.') {
            return (1..=15).contains(&whole).then_some(Number::Integer);
        }
        let fraction = self.take_while(|byte| byte.is_ascii_digit()).len();
        ((1..=12).contains(&whole) && (1..=3).contains(&fraction)).then_some(Number::Decimal)
    }

    /// RFC 9651 §4.2.7: Base64 between colons, whose padding may be missing.
    fn byte_sequence(&mut self) -> Option<()> {
        self.next();
        let data =
            self.take_while(|byte| byte.is_ascii_alphanumeric() || byte == b'+' || byte == b'/');
        let padding = self.take_while(|byte| byte == b'=').len();
        let most = match data.len() % 4 {
            0 => 0,
            2 => 2,
            3 => 1,
            _ => return None,
        };
        (padding <= most && self.skip(b':')).then_some(())
    }

    /// RFC 9651 §4.2.10: percent-encoded UTF-8 between `%"` and `"`.
    fn display_string(&mut self) -> Option<()> {
        self.next();
        self.skip(b'"').then_some(())?;
        let mut decoded = Vec::new();
        loop {
            match self.next()? {
                b'"' => return std::str::from_utf8(&decoded).ok().map(drop),
                b'%' => decoded.push((self.hex_digit()? << 4) | self.hex_digit()?),
                byte @ b' '..=b'~' => decoded.push(byte),
                _ => return None,
            }
        }
    }

    fn hex_digit(&mut self) -> Option<u8> {
        match self.next()? {
            digit @ b'0'..=b'9' => Some(digit - b'0'),
            letter @ b'a'..=b'f' => Some(letter - b'a' + 10),
            _ => None,
        }
    }
}

#[derive(PartialEq, Eq)]
enum Number {
    Integer,
    Decimal,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(value: &str) -> Option<String> {
        parse_string_item(value.as_bytes())
    }

    #[test]
    fn only_quotes_and_backslashes_can_be_escaped() {
        assert_eq!(parse(r#""\"\\""#).as_deref(), Some(r#""\"#));
        for string in [r#""\n""#, r#""\""#, r#""\"#, r#""\u0041""#] {
            assert_eq!(parse(string), None, "{string}");
        }
    }

    #[test]
    fn control_characters_and_bytes_beyond_ascii_are_refused() {
        assert_eq!(parse("\" ~\"").as_deref(), Some(" ~"));
        for byte in (0..0x20).chain(0x7f..=0xff) {
            assert_eq!(parse_string_item(&[b'"', b'a', byte, b'"']), None, "{byte:#x}");
        }
    }

    #[test]
    fn well_formed_parameters_are_skipped() {
        for parameters in [
            "",
            ";a",
            ";a;b",
            ";  a=1",
            ";*",
            ";a.b-c_d*1=?0",
            ";a=?1",
            ";a=-12.345",
            ";a=123456789012345",
            ";a=123456789012.1",
            ";a=@-1",
            ";a=token/1:2",
            ";a=*",
            ";a=\"\\\"\"",
            ";a=::",
            ";a=:aGk=:",
            ";a=:aGk:",
            ";a=%\"f%c3%bc\"",
            ";a=1;a=2",
        ] {
            assert_eq!(parse(&format!("\"k\"{parameters}")).as_deref(), Some("k"), "{parameters}");
        }
    }

    #[test]
    fn malformed_parameters_are_refused() {
        for parameters in [
            ";",
            ";;a",
            "; ",
            " ;a",
            ";a ",
            ";A",
            ";1",
            ";a=",
            ";a= 1",
            ";a=?2",
            ";a=?",
            ";a=-",
            ";a=1.",
            ";a=.1",
            ";a=1.2345",
            ";a=1234567890123456",
            ";a=1234567890123.1",
            ";a=@1.5",
            ";a=@",
            ";a=:a:",
            ";a=:aGk==:",
            ";a=:aGk",
            ";a=:a*b:",
            ";a=\"",
            ";a=%x",
            ";a=%\"%C3%BC\"",
            ";a=%\"%ff\"",
            ";a=%\"",
            ";a=(1)",
            ",\"k\"",
            ";a,\"k\"",
            "x",
            "\"",
            ";\ta",
        ] {
            assert_eq!(parse(&format!("\"k\"{parameters}")), None, "{parameters}");
        }
    }
}
