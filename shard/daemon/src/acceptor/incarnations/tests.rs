use std::cell::Cell;
use std::rc::Rc;

use super::*;

/// A process whose death the test decides.
#[derive(Clone, Debug)]
struct Fake {
    pid: u32,
    dead: Rc<Cell<bool>>,
}

impl Fake {
    fn new(pid: u32) -> Self {
        Self { pid, dead: Rc::default() }
    }
}

impl Process for Fake {
    fn pid(&self) -> u32 {
        self.pid
    }

    fn is_dead(&self) -> bool {
        self.dead.get()
    }
}

const ONE: Incarnation = Incarnation([1; 16]);
const TWO: Incarnation = Incarnation([2; 16]);

/// X5: dead means the process ended AND every connection gave end of file, in any order.
#[test]
fn death_needs_the_process_and_every_connection() {
    let orders: [[u8; 3]; 6] = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
    for order in orders {
        let mut clients = Incarnations::new(8);
        let process = Fake::new(7);
        assert!(clients.connect(ONE, Some(process.clone()), Part::Attached).unwrap());
        assert!(!clients.connect(ONE, Some(process.clone()), Part::Open).unwrap());
        let dead = order.map(|step| match step {
            0 => {
                process.dead.set(true);
                clients.bury_if_dead(ONE)
            }
            1 => clients.disconnect(ONE, Part::Attached),
            _ => clients.disconnect(ONE, Part::Open),
        });
        assert_eq!(dead, [false, false, true], "{order:?}");
        assert!(!clients.bury_if_dead(ONE), "told once");
    }
}

/// X5: a closed connection alone proves nothing, however long the process lives on.
#[test]
fn a_live_process_without_connections_is_not_dead() {
    let mut clients = Incarnations::new(8);
    let process = Fake::new(7);
    clients.connect(ONE, Some(process.clone()), Part::Attached).unwrap();
    assert!(!clients.disconnect(ONE, Part::Attached));
    assert!(!clients.bury_if_dead(ONE));
    process.dead.set(true);
    assert!(clients.bury_if_dead(ONE));
}

#[test]
fn another_process_cannot_take_an_incarnation() {
    let mut clients = Incarnations::new(8);
    let process = Fake::new(7);
    clients.connect(ONE, Some(process.clone()), Part::Open).unwrap();
    let taken = Err(Refusal::IncarnationTaken(7));
    assert_eq!(clients.connect(ONE, Some(Fake::new(8)), Part::Open), taken);
    assert_eq!(clients.connect(ONE, Some(Fake::new(8)), Part::Attached), taken);
    // The number of a dead process may recur.
    process.dead.set(true);
    assert_eq!(clients.connect(ONE, Some(Fake::new(7)), Part::Open), taken);
    assert!(clients.disconnect(ONE, Part::Open));
    let dead = Err(Refusal::IncarnationTaken(ONE.process_id()));
    assert_eq!(clients.connect(ONE, Some(Fake::new(7)), Part::Open), dead);
    assert_eq!(clients.connect(TWO, Some(Fake::new(7)), Part::Open), Ok(true));
}

#[test]
fn clients_by_tcp_are_never_proven_dead() {
    let mut clients: Incarnations<Fake> = Incarnations::new(8);
    assert_eq!(clients.connect(ONE, None, Part::Open), Ok(false));
    assert_eq!(clients.connect(ONE, None, Part::Open), Ok(false));
    assert!(!clients.disconnect(ONE, Part::Open));
    assert!(!clients.disconnect(ONE, Part::Open));
    assert!(clients.known.is_empty());
}

#[test]
fn room_is_made_by_forgetting_the_oldest_idle_one() {
    let mut clients = Incarnations::new(2);
    clients.connect(ONE, Some(Fake::new(1)), Part::Open).unwrap();
    clients.connect(TWO, Some(Fake::new(2)), Part::Open).unwrap();
    let three = Incarnation([3; 16]);
    let full = Err(Refusal::TooManyIncarnations(2));
    assert_eq!(clients.connect(three, Some(Fake::new(3)), Part::Open), full);
    clients.disconnect(TWO, Part::Open);
    clients.connect(three, Some(Fake::new(3)), Part::Open).unwrap();
    assert!(clients.process(TWO).is_none());
    assert!(clients.process(ONE).is_some());
}

/// The server lives for months and meets clients without end: what is gone leaves nothing behind.
#[test]
fn numbers_name_known_clients_only_and_never_recur() {
    let mut clients = Incarnations::new(1);
    let mut number_last = 0;
    for round in 0..100_u32 {
        let process = (round % 2 == 0).then(|| Fake::new(7));
        let name = Incarnation([u8::try_from(round).unwrap(); 16]);
        clients.connect(name, process.clone(), Part::Open).unwrap();
        let number = clients.number(name).unwrap();
        assert!(number > number_last);
        assert_eq!(clients.numbered(number), Some(name));
        assert_eq!(clients.numbered(number_last), None);
        number_last = number;
        // Dead before its connection ends, or forgotten for lack of room, or never bound.
        if let Some(process) = process {
            process.dead.set(round % 4 == 0);
        }
        clients.disconnect(name, Part::Open);
        assert!(clients.by_number.len() <= 1);
    }
}

#[test]
fn attach_connections_are_few() {
    let mut clients = Incarnations::new(8);
    for _ in 0..ATTACHED_MAX {
        clients.connect(ONE, Some(Fake::new(1)), Part::Attached).unwrap();
    }
    let refused = Err(Refusal::TooManyConnections(ATTACHED_MAX));
    assert_eq!(clients.connect(ONE, Some(Fake::new(1)), Part::Attached), refused);
}
