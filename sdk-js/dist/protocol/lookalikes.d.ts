/**
 * What a reader takes for the same: letters of other alphabets, and digits, that look like Latin
 * letters.
 *
 * After the idea of the skeleton of Unicode Technical Standard 39, with the letters that occur in
 * names. The Python client's and the desk's `amends/protocol/lookalikes.py` has the same ones.
 */
/** The same for all texts that a reader may take for one another. */
export declare function skeleton(text: string): string;
