"""The phrasebook's words in English and French: tables without logic.

An entry ends at a comma, and an underscore stands for a space. English forms that no rule gives follow a slash
(a noun's plural, a verb's past, an adjective's comparative), French ones too. A star marks an initial that refuses
elision (le hibou). Nouns end with their gender; a verb without a past (-) never occurs in the past here: it is a
state, or its English past looks like its present. Adjectives have the forms masculine/feminine/masculine before a
vowel if they are irregular; = at the end means that they never change.
"""

from __future__ import annotations

NOUNS = {
    "person": """
        man/men homme m, woman/women femme f, boy garçon m, girl fille f, child/children enfant m, father père m,
        mother mère f, brother frère m, sister sœur f, son fils m, daughter fille f, uncle oncle m, aunt tante f,
        grandfather grand-père/grands-pères m, grandmother grand-mère/grands-mères f, friend ami m, neighbour voisin
        m, teacher professeur m, doctor médecin m, student étudiant m, baker boulanger m, king roi m, queen reine f,
        actress actrice f, lawyer avocat m, hero/heroes *héros m, baby bébé m, wife/wives femme f, princess
        princesse f""",
    "animal": """
        dog chien m, cat chat m, horse cheval m, bird oiseau m, cow vache f, duck canard m, mouse/mice souris f,
        rabbit lapin m, wolf/wolves loup m, bear ours m, lion lion m, elephant éléphant m, owl *hibou/*hiboux m,
        bee abeille f""",
    "food": """
        apple pomme f, banana banane f, orange orange f, tomato/tomatoes tomate f,
        potato/potatoes pomme_de_terre/pommes_de_terre f, onion oignon m, egg œuf m, cake gâteau m, cherry cerise f,
        strawberry fraise f, salad salade f, bean *haricot m""",
    "meal": """
        bread pain m, meat viande f, rice riz m, cheese fromage m, soup soupe f, chocolate chocolat m,
        jam confiture f""",
    "drink": "water eau f, milk lait m, coffee café m, tea thé m, wine vin m, beer bière f",
    "text": """
        book livre m, letter lettre f, newspaper journal m, story histoire f, novel roman m""",
    "thing": """
        pen stylo m, glass verre m, cup tasse f, plate assiette f, knife/knives couteau m, lamp lampe f,
        clock horloge f, phone téléphone m, computer ordinateur m, umbrella parapluie m, doll poupée f, toy jouet m,
        gift cadeau m, flower fleur f, axe *hache f, candle bougie f, key clé f""",
    "furniture": "table table f, chair chaise f, bed lit m, cupboard armoire f",
    "lid": "door porte f, window fenêtre f, box boîte f, bottle bouteille f, bag sac m",
    "clothes": """
        shirt chemise f, dress robe f, skirt jupe f, coat manteau m, hat chapeau m, shoe chaussure f,
        scarf/scarves écharpe f, jacket veste f""",
    "vehicle": "car voiture f, bus bus m, train train m, truck camion m",
    "craft": "plane avion m, boat bateau m, bicycle vélo m",
    "building": """
        house maison f, school école f, church église f, shop magasin m, restaurant restaurant m, hotel hôtel m,
        hospital hôpital m, station gare f, airport aéroport m, museum musée m, office bureau m, farm ferme f""",
    "room": "kitchen cuisine f, bedroom chambre f, bathroom salle_de_bains/salles_de_bains f",
    "outdoors": """
        garden jardin m, park parc m, forest forêt f, street rue f, village village m, city ville f, market marché m""",
    "landmark": "river rivière f, bridge pont m, mountain montagne f, tree arbre m",
    "instrument": "piano piano m, guitar guitare f, violin violon m",
}

NAMES = "Marie f, Anne f, Alice f, Paul m, Pierre m, Thomas m"

# Adjectives by what they can be said of. In French these stand before the noun ...
ADJECTIVES_BEFORE = {
    "animal food text thing furniture lid clothes vehicle craft building room outdoors landmark": "small/smaller petit",
    "animal food thing furniture lid vehicle craft building room outdoors landmark": "big/bigger grand",
    "animal text thing furniture lid clothes vehicle craft building room outdoors landmark": """
        beautiful beau/belle/bel, old/older vieux/vieille/vieil""",
    "person": "old/older vieux/vieille/vieil, young/younger jeune",
    "text thing furniture lid clothes vehicle craft building": """
        new/newer nouveau/nouvelle/nouvel, pretty/prettier joli""",
}
# ... and these after it.
ADJECTIVES_AFTER = {
    "person": """
        happy/happier heureux, sad/sadder triste, tired fatigué, sick malade, rich/richer riche, famous célèbre,
        intelligent intelligent, kind/kinder gentil/gentille, funny/funnier drôle, brave/braver courageux""",
    "animal": "dangerous dangereux, fast/faster rapide, quiet/quieter calme",
    "food meal drink": "fresh/fresher frais/fraîche, cold/colder froid, hot/hotter chaud",
    "text": "interesting intéressant, easy/easier facile, useful utile, sad/sadder triste",
    "thing furniture lid": "heavy/heavier lourd, clean/cleaner propre, dirty/dirtier sale",
    "clothes": "clean/cleaner propre, dirty/dirtier sale, expensive cher, dry/drier sec/sèche",
    "vehicle craft": "fast/faster rapide, expensive cher",
    "building room": "clean/cleaner propre, famous célèbre",
    "outdoors landmark": "quiet/quieter calme, famous célèbre, dangerous dangereux",
}
ADJECTIVES_WITHOUT_DEGREES = {
    "animal thing furniture lid clothes vehicle craft": """
        red rouge, green vert, blue bleu, white blanc/blanche, black noir, yellow jaune, brown marron/marron/=""",
    "person text": "French français, English anglais, Italian italien, American américain",
    "thing furniture lid": "wooden en_bois/en_bois/=, round rond",
    "building": "closed fermé",
    "food meal drink": "delicious délicieux",
}

# A verb: English, French infinitive; where no rule gives them, participle and present (je il nous vous ils).
# Rows: who does it, to what, which verbs.
TRANSITIVE = [
    (
        "person animal",
        "person animal",
        """
        see/saw voir vu vois voit voyons voyez voient, look_at regarder, look_for chercher, find/found trouver""",
    ),
    ("animal", "food meal", "eat/ate manger"),
    (
        "person",
        "person",
        """
        love/- aimer, know/- connaître connu connais connaît connaissons connaissez connaissent, invite inviter,
        help aider, listen_to écouter, wait_for attendre, meet/met rencontrer,
        understand/understood comprendre compris comprends comprend comprenons comprenez comprennent""",
    ),
    (
        "person",
        "building outdoors",
        """
        visit visiter, know/- connaître connu connais connaît connaissons connaissez connaissent""",
    ),
    (
        "person",
        "text thing furniture lid clothes",
        """
        buy/bought acheter acheté achète achète achetons achetez achètent, sell/sold vendre, carry porter,
        lose/lost perdre, forget/forgot oublier, choose/chose choisir, keep/kept garder,
        take/took prendre pris prends prend prenons prenez prennent, have/- avoir eu ai a avons avez ont""",
    ),
    (
        "person",
        "thing furniture vehicle craft",
        """
        repair réparer, break/broke casser, clean nettoyer nettoyé nettoie nettoie nettoyons nettoyez nettoient""",
    ),
    ("person", "food meal", "eat/ate manger, prepare préparer"),
    ("person", "drink", "drink/drank boire bu bois boit buvons buvez boivent"),
    (
        "person",
        "text",
        """
        read/- lire lu lis lit lisons lisez lisent, write/wrote écrire écrit écris écrit écrivons écrivez écrivent""",
    ),
    ("person", "lid", "open ouvrir ouvert ouvre ouvre ouvrons ouvrez ouvrent, close fermer"),
    (
        "person",
        "clothes",
        "wear/wore porter, wash laver",
    ),
    (
        "person",
        "vehicle",
        """
        drive/drove conduire conduit conduis conduit conduisons conduisez conduisent, wait_for attendre""",
    ),
]
TO_SOMEONE = """
    talk_to parler, answer répondre"""
GIVING = """
    give/gave donner, show montrer, send/sent envoyer envoyé envoie envoie envoyons envoyez envoient,
    sell/sold vendre"""
# Their objects are said in general, without an article in English and with one in French.
TASTES = """
    like/- aimer, hate/- détester, prefer/- préférer préféré préfère préfère préférons préférez préfèrent"""
PLAYING = "play jouer"
NEEDING = "need/- avoir eu ai a avons avez ont"
GAMES = "football le_football, tennis le_tennis, chess les_échecs, cards les_cartes"
INTRANSITIVE = {
    "person": """
        work travailler, dance danser, sing/sang chanter, laugh rire ri ris rit rions riez rient, cry pleurer,
        smile sourire souri souris sourit sourions souriez sourient, cook cuisiner""",
    "person animal": """
        sleep/slept dormir dormi dors dort dormons dormez dorment,
        run/ran courir couru cours court courons courez courent, swim/swam nager, walk marcher, eat/ate manger""",
}
# These make their past with être, and their participle agrees with the subject.
WITH_ETRE = {
    "alone": """
        leave/left partir parti pars part partons partez partent,
        go_out/went_out sortir sorti sors sort sortons sortez sortent""",
    "somewhere": "arrive arriver, fall/fell tomber, stay rester",
    "to": "go/went aller allé vais va allons allez vont",
    "from": """
        come/came venir venu viens vient venons venez viennent,
        come_back/came_back revenir revenu reviens revient revenons revenez reviennent""",
}
REFLEXIVE = """
    get_up/got_up lever levé lève lève levons levez lèvent, wake_up/woke_up réveiller, go_to_bed/went_to_bed coucher,
    rest reposer, get_dressed/got_dressed habiller"""
MODALS = """
    can pouvoir pu peux peut pouvons pouvez peuvent, must devoir dû dois doit devons devez doivent,
    want_to vouloir voulu veux veut voulons voulez veulent, like_to aimer,
    hope_to espérer espéré espère espère espérons espérez espèrent"""
ETRE = "be être été suis est sommes êtes sont"
AVOIR = "have avoir eu ai a avons avez ont"
ALLER = "go aller allé vais va allons allez vont"

# What English is, French has.
FEELINGS = "hungry faim, thirsty soif, sleepy sommeil, right raison, wrong tort, afraid peur"

# subject, object and alone; French: subject, direct, indirect, alone. Rows are persons: I, he, we, you, they; then she.
PRONOUNS = """
    I me je me me moi, he him il le lui lui, we us nous nous nous nous, you you vous vous vous vous,
    they them ils les leur eux, she her elle la lui elle"""
REFLEXIVE_PRONOUNS = "me se nous vous se"

# English, masculine, feminine. "some" and what it becomes after a negation is the grammar's business.
SINGULAR = """
    the le la, a un une, this ce cette, my mon ma, your votre votre, his son sa, her son sa, our notre notre,
    their leur leur, every chaque chaque"""
PLURAL = """
    the les les, some des des, these ces ces, my mes mes, your vos vos, his ses ses, her ses ses, our nos nos,
    their leurs leurs, several plusieurs plusieurs, many beaucoup_de beaucoup_de, all_the tous_les toutes_les"""
UNCOUNTED = "the le la, some de_le de_la, this ce cette, my mon ma, your votre votre, his son sa, our notre notre"

# English word, its French, and whether ne goes with it. They stand after the finite verb.
NEGATIONS = "not pas, never jamais, no_longer plus"
FREQUENCIES = "always toujours, often souvent, sometimes parfois, still encore, already déjà"

IN = "in dans"
AT = "at à"
NEARBY = """
    near près_de, behind derrière, in_front_of devant, far_from loin_de, next_to à_côté_de, opposite en_face_de"""
ON_FURNITURE = "on sur, under sous, near près_de, behind derrière, next_to à_côté_de"
SOMEWHERE = """
    at_home à_la_maison, here ici, outside dehors, in_Paris à_Paris, in_London à_Londres, in_France en_France,
    in_Italy en_Italie, in_England en_Angleterre, in_Canada au_Canada, in_Japan au_Japon"""

TIMES = {
    "present": """
        today aujourd'hui, now maintenant, every_day tous_les_jours, every_week toutes_les_semaines,
        in_the_morning le_matin, in_the_afternoon l'après-midi, in_the_evening le_soir, at_night la_nuit,
        at_noon à_midi, at_midnight à_minuit, in_winter en_hiver, in_summer en_été, in_spring au_printemps,
        in_autumn en_automne, on_Mondays le_lundi, on_Tuesdays le_mardi, on_Wednesdays le_mercredi,
        on_Thursdays le_jeudi, on_Fridays le_vendredi, on_Saturdays le_samedi, on_Sundays le_dimanche""",
    "past": """
        yesterday hier, this_morning ce_matin, yesterday_evening hier_soir, last_week la_semaine_dernière,
        last_month le_mois_dernier, last_year l'année_dernière, on_Monday lundi, on_Tuesday mardi,
        on_Wednesday mercredi, on_Thursday jeudi, on_Friday vendredi, on_Saturday samedi, on_Sunday dimanche,
        in_January en_janvier, in_February en_février, in_March en_mars, in_April en_avril""",
    "future": """
        tomorrow demain, tonight ce_soir, soon bientôt, tomorrow_morning demain_matin, next_week la_semaine_prochaine,
        next_month le_mois_prochain, next_year l'année_prochaine, on_Monday lundi, on_Tuesday mardi,
        on_Wednesday mercredi, on_Thursday jeudi, on_Friday vendredi, on_Saturday samedi, on_Sunday dimanche,
        in_May en_mai, in_June en_juin, in_July en_juillet, in_August en_août, in_September en_septembre,
        in_October en_octobre, in_November en_novembre, in_December en_décembre""",
}
SPANS = "days jours, weeks semaines, months mois, years ans"
QUESTION_WORDS = "where où, when quand, why pourquoi"

ENGLISH_NUMBERS = """
    zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen
    eighteen nineteen"""
ENGLISH_TENS = "- - twenty thirty forty fifty sixty seventy eighty ninety"
FRENCH_NUMBERS = """
    zéro un deux trois quatre cinq six sept *huit neuf dix *onze douze treize quatorze quinze seize dix-sept dix-huit
    dix-neuf"""
FRENCH_TENS = "- - vingt trente quarante cinquante soixante soixante quatre-vingt quatre-vingt"

AN_BY_SOUND = "hour honest"
A_BY_SOUND = "university useful European"
