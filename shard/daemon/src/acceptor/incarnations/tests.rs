use std::cell::Cell;
use std::rc::Rc;

use super::*;

/// A process whose death the test decides.
#[derive(Clone, Debug)]
struct Fake {
    pid: u32,
    is_watchable: bool,
    dead: Rc<Cell<bool>>,
}

impl Fake {
    fn new(pid: u32) -> Self {
        Self { pid, is_watchable: true, dead: Rc::default() }
    }
}

impl Process for Fake {
    fn pid(&self) -> u32 {
        self.pid
    }

    fn is_dead(&self) -> bool {
        self.dead.get()
    }

    fn is_watchable(&self) -> bool {
        self.is_watchable
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
        let number = clients.connect(ONE, Some(process.clone()), Role::Attach).unwrap().unwrap();
        assert_eq!(clients.connect(ONE, Some(process.clone()), Role::Hold), Ok(None));
        let dead = order.map(|step| match step {
            0 => {
                process.dead.set(true);
                clients.bury_all(number) == [ONE]
            }
            1 => clients.disconnect(ONE, Part::Attached),
            _ => clients.disconnect(ONE, Part::Open),
        });
        assert_eq!(dead, [false, false, true], "{order:?}");
        assert_eq!(clients.bury_all(number), [], "told once");
    }
}

/// X5: a closed connection alone proves nothing, however long the process lives on.
#[test]
fn a_live_process_without_connections_is_not_dead() {
    let mut clients = Incarnations::new(8);
    let process = Fake::new(7);
    let number = clients.connect(ONE, Some(process.clone()), Role::Hold).unwrap().unwrap();
    assert!(!clients.disconnect(ONE, Part::Open));
    assert_eq!(clients.bury_all(number), []);
    process.dead.set(true);
    assert_eq!(clients.bury_all(number), [ONE]);
}

#[test]
fn another_process_cannot_take_an_incarnation() {
    let mut clients = Incarnations::new(8);
    let process = Fake::new(7);
    clients.connect(ONE, Some(process.clone()), Role::Hold).unwrap();
    let taken = Err(Refusal::IncarnationTaken(7));
    assert_eq!(clients.connect(ONE, Some(Fake::new(8)), Role::Hold), taken);
    assert_eq!(clients.connect(ONE, Some(Fake::new(8)), Role::Attach), taken);
    // The number of a dead process may recur.
    process.dead.set(true);
    assert_eq!(clients.connect(ONE, Some(Fake::new(7)), Role::Hold), taken);
    assert!(clients.disconnect(ONE, Part::Open));
    let dead = Err(Refusal::IncarnationTaken(ONE.process_id()));
    assert_eq!(clients.connect(ONE, Some(Fake::new(7)), Role::Hold), dead);
    let number = clients.connect(TWO, Some(Fake::new(7)), Role::Hold).unwrap();
    assert!(number.is_some(), "another process by the same number is watched anew");
}

#[test]
fn clients_by_tcp_are_never_proven_dead() {
    let mut clients: Incarnations<Fake> = Incarnations::new(8);
    assert_eq!(clients.connect(ONE, None, Role::Hold), Ok(None));
    assert_eq!(clients.connect(ONE, None, Role::Hold), Ok(None));
    assert!(!clients.disconnect(ONE, Part::Open));
    assert!(!clients.disconnect(ONE, Part::Open));
    assert!(clients.known.is_empty());
}

#[test]
fn room_is_made_by_forgetting_the_oldest_idle_one() {
    let mut clients = Incarnations::new(2);
    clients.connect(ONE, Some(Fake::new(1)), Role::Hold).unwrap();
    clients.connect(TWO, Some(Fake::new(2)), Role::Hold).unwrap();
    let three = Incarnation([3; 16]);
    let full = Err(Refusal::TooManyIncarnations(2));
    assert_eq!(clients.connect(three, Some(Fake::new(3)), Role::Hold), full);
    clients.disconnect(TWO, Part::Open);
    clients.connect(three, Some(Fake::new(3)), Role::Hold).unwrap();
    assert!(!clients.known.contains_key(&TWO));
    assert!(clients.known.contains_key(&ONE));
    assert_eq!((clients.take_forgotten(), clients.take_forgotten()), (1, 0));
}

/// A client object that came back is not idle: it is not forgotten for another.
#[test]
fn the_idle_ones_are_those_without_a_connection() {
    let mut clients = Incarnations::new(64);
    for name in 0..64u8 {
        let incarnation = Incarnation([name; 16]);
        clients.connect(incarnation, Some(Fake::new(7)), Role::Hold).unwrap();
        clients.disconnect(incarnation, Part::Open);
    }
    assert_eq!((clients.idle.len(), clients.processes.count()), (64, 1));
    let first = Incarnation([0; 16]);
    clients.connect(first, Some(Fake::new(7)), Role::Hold).unwrap();
    clients.connect(Incarnation([99; 16]), None, Role::Hold).unwrap();
    assert!(clients.known.contains_key(&first));
    assert!(!clients.known.contains_key(&ONE));
    assert_eq!(clients.idle.len(), 62);
}

/// A process with thousands of client objects costs one descriptor, as long as any is known.
#[test]
fn a_process_is_watched_once() {
    let mut clients = Incarnations::new(8);
    let process = Fake::new(7);
    let three = Incarnation([3; 16]);
    let number = clients.connect(ONE, Some(process.clone()), Role::Hold).unwrap().unwrap();
    for name in [TWO, three] {
        assert_eq!(clients.connect(name, Some(process.clone()), Role::Hold), Ok(None));
    }
    let other = clients.connect(Incarnation([4; 16]), Some(Fake::new(8)), Role::Hold).unwrap();
    assert!(other.is_some_and(|other| other != number));
    assert_eq!(clients.processes.count(), 2);
    clients.disconnect(ONE, Part::Open);
    clients.disconnect(TWO, Part::Open);
    process.dead.set(true);
    assert_eq!(clients.bury_all(number), [ONE, TWO]);
    assert!(clients.disconnect(three, Part::Open));
    assert!(clients.process(number).is_none());
    assert_eq!(clients.processes.count(), 1);
}

/// X5: process 0 is any process of another namespace, and one without a pidfd may have ended long
/// ago: neither stands for another.
#[test]
fn only_processes_that_are_surely_the_same_are_one() {
    for (pid, is_watchable) in [(0, true), (0, false), (7, false)] {
        let mut clients = Incarnations::new(8);
        let process = || Some(Fake { is_watchable, ..Fake::new(pid) });
        let first = clients.connect(ONE, process(), Role::Hold).unwrap();
        let second = clients.connect(TWO, process(), Role::Hold).unwrap();
        assert!(first.is_some() && second.is_some() && first != second);
    }
    // The process id of a dead process, whose connection a child holds open, may recur.
    let mut clients = Incarnations::new(8);
    let (old, new) = (Fake::new(7), Fake::new(7));
    let first = clients.connect(ONE, Some(old.clone()), Role::Hold).unwrap().unwrap();
    old.dead.set(true);
    let second = clients.connect(TWO, Some(new.clone()), Role::Hold).unwrap().unwrap();
    assert!(clients.disconnect(ONE, Part::Open));
    assert!(clients.process(first).is_none() && clients.process(second).is_some());
    assert_eq!(
        clients.connect(ONE, Some(new), Role::Hold),
        Err(Refusal::IncarnationTaken(0x0101_0101))
    );
    assert_eq!(clients.connect(Incarnation([3; 16]), Some(Fake::new(7)), Role::Hold), Ok(None));
}

/// A client object that could never reserve is forgotten with its last connection, its process
/// with it. One that could is kept until its process is dead, whatever else it did.
#[test]
fn who_can_hold_nothing_is_forgotten_at_once() {
    let mut clients = Incarnations::new(8);
    let process = || Some(Fake::new(7));
    clients.connect(ONE, process(), Role::Attach).unwrap();
    clients.connect(ONE, process(), Role::Watch).unwrap();
    assert!(!clients.disconnect(ONE, Part::Attached));
    assert!(clients.known.contains_key(&ONE));
    assert!(!clients.disconnect(ONE, Part::Open));
    assert!(clients.known.is_empty() && clients.processes.count() == 0);
    clients.connect(ONE, process(), Role::Hold).unwrap();
    clients.disconnect(ONE, Part::Open);
    clients.connect(ONE, process(), Role::Attach).unwrap();
    clients.disconnect(ONE, Part::Attached);
    assert!(clients.known.contains_key(&ONE) && clients.processes.count() == 1);
}

/// The server lives for months and meets clients without end: what is gone leaves nothing behind.
#[test]
fn numbers_name_known_processes_only_and_never_recur() {
    let mut clients = Incarnations::new(1);
    let mut number_last = ProcessNumber(0);
    for round in 0..100_u32 {
        let name = Incarnation([u8::try_from(round).unwrap(); 16]);
        if round % 2 == 1 {
            clients.connect(name, None, Role::Hold).unwrap();
            clients.disconnect(name, Part::Open);
            continue;
        }
        let process = Fake::new(7);
        let number = clients.connect(name, Some(process.clone()), Role::Hold).unwrap().unwrap();
        assert!(number.0 > number_last.0);
        assert_eq!(clients.bury_all(number_last), []);
        number_last = number;
        // Dead before its connection ends, or forgotten for lack of room.
        process.dead.set(round % 4 == 0);
        clients.disconnect(name, Part::Open);
        assert!(clients.known.len() <= 1 && clients.idle.len() <= 1);
        assert!(clients.processes.count() <= 1);
    }
}

#[test]
fn attach_connections_are_few() {
    let mut clients = Incarnations::new(8);
    for _ in 0..ATTACHED_MAX {
        clients.connect(ONE, Some(Fake::new(1)), Role::Attach).unwrap();
    }
    let refused = Err(Refusal::TooManyConnections(ATTACHED_MAX));
    assert_eq!(clients.connect(ONE, Some(Fake::new(1)), Role::Attach), refused);
}
