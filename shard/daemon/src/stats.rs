//! `stats`: a server's books and counters, per shard and summed, as a table or as JSON.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::process::ExitCode;

use comfy_table::{CellAlignment, Table, presets};
use maru_client::StatsReply;
use maru_wire::{NamespaceUsage, PageCounts};
use serde_json::{Map, Value, json};

use crate::ask::{self, AskError};
use crate::cli::StatsArgs;

/// Prints the statistics of every shard.
pub(crate) fn run(args: &StatsArgs) -> ExitCode {
    ask::exit_code(print(args))
}

fn print(args: &StatsArgs) -> Result<(), AskError> {
    let client = ask::client(&args.server)?;
    let shards = client.stats(args.server.timeout.0)?;
    let sum = sum(&shards);
    let mut out = std::io::stdout().lock();
    if args.json {
        let all: Vec<Value> = shards.iter().map(to_json).collect();
        writeln!(out, "{}", json!({ "sum": to_json(&sum), "shards": all }))?;
    } else {
        write!(out, "{}", to_text(&shards, &sum))?;
    }
    Ok(())
}

/// How the shards' numbers make one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Merge {
    Add,
    Max,
}

/// One number of a shard, under its name in JSON.
struct Row {
    name: &'static str,
    merge: Merge,
    get: fn(&StatsReply) -> &u64,
    get_mut: fn(&mut StatsReply) -> &mut u64,
}

macro_rules! rows {
    ($($merge:ident $($field:ident).+),* $(,)?) => {
        [$(Row {
            name: stringify!($($field).+),
            merge: Merge::$merge,
            get: |stats| &stats.$($field).+,
            get_mut: |stats| &mut stats.$($field).+,
        }),*]
    };
}

/// Every number of a shard, in the order of the table.
const ROWS: [Row; 37] = rows![
    Max uptime_us,
    Add cpu_us,
    Max page_bytes,
    Add pages.total,
    Add pages.free,
    Add pages.published,
    Add pages.reserved,
    Add pages.overdue,
    Add pages.fenced,
    Add pages.cleared,
    Add pages.unlinked,
    Add key_count,
    Add reservation_count,
    Add overdue_count,
    Max oldest_reservation_us,
    Add lease_count,
    Add pinned_count,
    Max oldest_lease_us,
    Add incarnation_count,
    Add connection_count,
    Add buffered_bytes,
    Add eviction_number,
    Add evicted_total,
    Add removed_total,
    Add granted_total,
    Add created_total,
    Add exists_hit_total,
    Add exists_miss_total,
    Add lookup_hit_total,
    Add lookup_miss_total,
    Add full_total,
    Add overdue_total,
    Add lease_expired_total,
    Add frame_total,
    Add scratch_frame_total,
    Add refused_total,
    Add pool_list_differs_total,
];

/// Adds up all shards. The parts without a sum say so: shard and core are those of nobody.
fn sum(shards: &[StatsReply]) -> StatsReply {
    let mut sum = StatsReply { core: -1, ..StatsReply::default() };
    for shard in shards {
        for row in &ROWS {
            let (part, whole) = (*(row.get)(shard), (row.get_mut)(&mut sum));
            *whole = match row.merge {
                Merge::Add => *whole + part,
                Merge::Max => part.max(*whole),
            };
        }
        for closed in &shard.closed {
            crate::reasons::add(&mut sum.closed, &closed.reason, closed.count);
        }
        if !sum.io.split('+').any(|io| io == shard.io) {
            sum.io = if sum.io.is_empty() { shard.io.clone() } else { sum.io + "+" + &shard.io };
        }
    }
    sum.namespaces = sum_namespaces(shards);
    sum
}

fn sum_namespaces(shards: &[StatsReply]) -> Vec<NamespaceUsage> {
    let mut by_name: BTreeMap<&str, NamespaceUsage> = BTreeMap::new();
    for part in shards.iter().flat_map(|shard| &shard.namespaces) {
        let whole = by_name.entry(&part.name).or_default();
        whole.name.clone_from(&part.name);
        whole.key_count += part.key_count;
        whole.used_pages += part.used_pages;
        whole.reserved_pages += part.reserved_pages;
    }
    by_name.into_values().collect()
}

/// Names every field as the protocol does.
fn to_json(stats: &StatsReply) -> Value {
    let mut fields = Map::new();
    let mut pages = Map::new();
    fields.insert("shard".to_owned(), json!(stats.shard));
    fields.insert("core".to_owned(), json!(stats.core));
    fields.insert("io".to_owned(), json!(stats.io));
    for row in &ROWS {
        let value = json!((row.get)(stats));
        match row.name.split_once('.') {
            Some((_, name)) => pages.insert(name.trim().to_owned(), value),
            None => fields.insert(row.name.to_owned(), value),
        };
    }
    fields.insert("pages".to_owned(), Value::Object(pages));
    fields.insert("books_balanced".to_owned(), json!(is_balanced(&stats.pages)));
    let closed = stats.closed.iter().map(|closed| (closed.reason.clone(), json!(closed.count)));
    fields.insert("closed".to_owned(), Value::Object(closed.collect()));
    let namespaces = stats.namespaces.iter().map(|namespace| {
        let usage = json!({
            "key_count": namespace.key_count,
            "used_pages": namespace.used_pages,
            "reserved_pages": namespace.reserved_pages,
        });
        (namespace.name.clone(), usage)
    });
    fields.insert("namespaces".to_owned(), Value::Object(namespaces.collect()));
    Value::Object(fields)
}

/// Whether the parts add up to all pages.
fn is_balanced(pages: &PageCounts) -> bool {
    let PageCounts { free, reserved, overdue, fenced, published, cleared, unlinked, total } = pages;
    free + reserved + overdue + fenced + published + cleared + unlinked == *total
}

/// Draws tables: the numbers, one column a shard, then reasons and namespaces.
fn to_text(shards: &[StatsReply], sum: &StatsReply) -> String {
    let mut numbers = table();
    let heads = shards.iter().map(|shard| format!("shard {}", shard.shard));
    numbers.set_header(["".to_owned(), "sum".to_owned()].into_iter().chain(heads));
    let text = |name: &str, of: &dyn Fn(&StatsReply) -> String| {
        [name.to_owned(), of(sum)].into_iter().chain(shards.iter().map(of)).collect::<Vec<_>>()
    };
    numbers.add_row(text("io", &|stats| stats.io.clone()));
    numbers.add_row(text("core", &|stats| match stats.core {
        -1 => String::new(),
        core => core.to_string(),
    }));
    for row in &ROWS {
        numbers.add_row(text(&title(row.name), &|stats| in_words(row, *(row.get)(stats))));
    }
    for column in numbers.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let mut closed = table();
    closed.set_header(["closed connections", "count"]);
    for reason in &sum.closed {
        closed.add_row([title(&reason.reason), reason.count.to_string()]);
    }
    let mut namespaces = table();
    namespaces.set_header(["namespace", "keys", "used pages", "reserved pages"]);
    for usage in &sum.namespaces {
        let counts = [usage.key_count, usage.used_pages, usage.reserved_pages];
        let cells = std::iter::once(usage.name.clone());
        namespaces.add_row(cells.chain(counts.iter().map(u64::to_string)));
    }
    let mut texts = vec![numbers.to_string()];
    texts.extend((!sum.closed.is_empty()).then(|| closed.to_string()));
    texts.extend((!sum.namespaces.is_empty()).then(|| namespaces.to_string()));
    texts.join("\n\n") + "\n"
}

fn table() -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_BORDERS_ONLY);
    table
}

fn title(name: &str) -> String {
    name.trim_end_matches("_total").trim_end_matches("_us").replace(['_', '.'], " ")
}

/// Times in seconds, all else as it is.
fn in_words(row: &Row, value: u64) -> String {
    if row.name.ends_with("_us") {
        format!("{}.{:03} s", value / 1_000_000, value / 1000 % 1000)
    } else {
        value.to_string()
    }
}

#[cfg(test)]
mod tests;
