//! Writes the first inputs of a fuzz target: `seeds TARGET FOLDER`.

fn main() -> std::io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [target, folder] = &arguments[..] else {
        eprintln!("usage: seeds TARGET FOLDER");
        std::process::exit(2);
    };
    maru_wire_fuzz::seeds::write(target, std::path::Path::new(folder))
}
