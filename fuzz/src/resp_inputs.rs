//! What must hold for any bytes that a RESP client sends. The fuzzer calls this, and a test of
//! `sluicegate-server` replays the corpus with it.

use sluicegate_server::resp::codec::{CommandBounds, Parser, ProtocolError};

/// Commands, why they ended, and how many bytes are left of one that is not complete.
type Read = (Vec<Vec<Vec<u8>>>, Option<ProtocolError>, usize);

/// The first byte says how the rest is cut into pieces. However it is cut it is the same commands,
/// within bounds; the parser holds no more memory than a multiple of what has arrived; and commands
/// written as arrays are read as they were.
pub(crate) fn resp(data: &[u8]) {
    let Some((seed, bytes)) = data.split_first() else { return };
    for bounds in [
        CommandBounds { arguments: 4, bulk_len: 16, command_len: 64 },
        CommandBounds { arguments: 1_000_000, bulk_len: 1 << 29, command_len: 1 << 29 },
    ] {
        let whole = read(bytes, &mut std::iter::repeat(usize::MAX), 128, &bounds);
        let mut state = u64::from(*seed);
        let mut sizes = std::iter::from_fn(|| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            Some(1 + (state >> 33) as usize % (1 + usize::from(*seed) % 16))
        });
        let pieces = read(bytes, &mut sizes, 1 + usize::from(*seed) % 3, &bounds);
        assert_eq!(pieces, whole, "{} with {bounds:?}", bytes.escape_ascii());
        let again: Vec<u8> = whole.0.iter().flat_map(|command| array(command)).collect();
        let generous = CommandBounds { command_len: usize::MAX, ..bounds };
        assert_eq!(read(&again, &mut std::iter::repeat(usize::MAX), 128, &generous), (whole.0, None, 0));
    }
}

/// Reads bytes that come in pieces of these sizes, and at most this many commands at once.
fn read(bytes: &[u8], sizes: &mut dyn Iterator<Item = usize>, most: usize, bounds: &CommandBounds) -> Read {
    let (mut parser, mut buffer, mut commands) = (Parser::default(), Vec::new(), Vec::new());
    let (mut rest, mut arrived) = (bytes, 0);
    while !rest.is_empty() {
        let (piece, later) = rest.split_at(sizes.next().unwrap_or(1).min(rest.len()));
        rest = later;
        arrived += piece.len();
        buffer.extend_from_slice(piece);
        loop {
            let error = parser.parse(&mut buffer, most, bounds).err();
            assert!(parser.held() <= 32 * arrived + 256, "{} bytes held for {arrived}", parser.held());
            let found = parser.len();
            for place in 0..found {
                let command = parser.commands(&buffer).get(place).expect("a command that was found is there");
                assert!(!command.is_empty() && command.len() <= bounds.arguments);
                let arguments: Vec<Vec<u8>> = command.from(0).map(<[u8]>::to_vec).collect();
                assert!(arguments.iter().all(|argument| argument.len() <= bounds.bulk_len));
                assert_eq!(arguments.len(), command.len());
                commands.push(arguments);
            }
            parser.clear_complete();
            if let Some(error) = error {
                let text = error.to_string();
                assert!(!text.is_empty() && !text.contains(char::is_control), "{text:?}");
                return (commands, Some(error), 0);
            }
            if found < most {
                break;
            }
        }
        buffer.drain(..parser.used());
        parser.removed();
        // A line's end is the one byte that its bound does not count.
        assert!(buffer.len() <= bounds.command_len.saturating_add(1), "{} bytes of a command", buffer.len());
    }
    (commands, None, buffer.len())
}

fn array(command: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", command.len()).into_bytes();
    for argument in command {
        bytes.extend_from_slice(format!("${}\r\n", argument.len()).as_bytes());
        bytes.extend_from_slice(argument);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}
