"""A fixed text whose ids show that two tokenizers work alike, beyond what their files say."""

#: Raised when the text changes: ids of two versions cannot be compared.
VERSION = 1
TEXT = (
    "The quick brown fox can't jump over 12 lazy dogs; it's 3.14159 times too SLOW.\n\n"
    "Ça déjà vu, naïve Straße, œuvre, Łódź, İstanbul, smørrebrød, año nuevo.\n"
    "Η γρήγορη αλεπού. Быстрая лиса прыгает. השועל המהיר. الثعلب السريع يقفز.\n"
    "तेज़ भूरी लोमड़ी कूदती है। สุนัขจิ้งจอกสีน้ำตาล 敏捷的棕色狐狸跳过了懒狗。素早い茶色の狐が、飛び越える。"
    "빠른 갈색 여우가 뛴다.\n"
    'def f(x: int) -> str:\n    if x >= 0x1F:\n\t\treturn f"{x!r:>10}"  # 100_000\n'
    "    return '' + \"\\n\"\n"
    "for (let i = 0; i < n; ++i) { a[i] += b?.c ?? 1e-9; }\r\n"
    "SELECT * FROM t WHERE id != 42;   three   spaces,\ttab, non\u00a0breaking, zero\u200bwidth\n"
    "👍🏽 👩\u200d👩\u200d👧\u200d👦 🇩🇪 ☃️ ½ ﬁ e\u0301 ẞ Å \ufeff 𝔘𝔫𝔦 (ノ◕ヮ◕)ノ*:・゚✧ …—“”\n"
    "0 00 000 1234567 2024-05-31T23:59:59Z 1,000,000.00 € $5 #tag @user https://a.b/c?d=e&f#g\n"
    "<s></s><|im_start|>user\nhi<|im_end|><|eot_id|><|begin_of_text|><|endoftext|><bos><eos>"
    "<|start_header_id|>[INST]<think></think><|user|><pad>  \n   end  "
)
