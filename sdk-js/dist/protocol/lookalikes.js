/**
 * What a reader takes for the same: letters of other alphabets, and digits, that look like Latin
 * letters.
 *
 * After the idea of the skeleton of Unicode Technical Standard 39, with the letters that occur in
 * names. The Python client's and the desk's `amends/protocol/lookalikes.py` has the same ones.
 */
const ALIKE = new Map(("аa вb сc ԁd еe ѐe ёe ғf ԍg һh нh іl їl јj кk ӏl мm пn оo рp ԛq гr ѕs тt цu ѵv ԝw хx уy" +
    " αa βb ϲc δd εe ηn ιl κk μm νv οo ρp σo τt υu χx γy ωw աw օo սu հh ոn ցg ѡw" +
    " ɑa ɡg ıl ƅb øo đd łl ħh ɩl 0o 1l il |l !l 3e 5s $s 8b")
    .split(" ")
    .map((pair) => Array.from(pair)));
/** The same for all texts that a reader may take for one another. */
export function skeleton(text) {
    const bare = folded(text.normalize("NFKC")).normalize("NFKD");
    const letters = bare.replace(/[\p{Mn}\p{Cf}\p{Me}]/gu, "");
    const alike = Array.from(letters, (letter) => ALIKE.get(letter) ?? letter).join("");
    return alike.replaceAll("rn", "m").replaceAll("vv", "w").replace(/[\s\x1c-\x1f\x85._-]/g, "");
}
/** Letter case does not count: a letter in all its forms, which small letters alone tell apart. */
function folded(text) {
    return text.toLowerCase().toUpperCase().toLowerCase().replaceAll("ς", "σ");
}
